#!/usr/bin/env bash
# Runs a command while every core has something else to do, at the same priority: what only works
# on an idle machine fails here.
#
#   scripts/under-load.sh COMMAND [ARGUMENT...]
#
# Ends with the status of the command; the load ends with it.
set -uo pipefail
if [[ $# -eq 0 ]]; then
  echo "under-load.sh: say which command to run" >&2
  exit 2
fi

load=()
# shellcheck disable=SC2317  # called by the trap
end_load() { kill "${load[@]}" 2>/dev/null; }
trap end_load EXIT
for ((core = 0; core < $(nproc); ++core)); do
  # It ends also when this script was killed and nobody could end it.
  (while [[ -d /proc/$$ ]]; do for ((i = 0; i < 100000; ++i)); do :; done; done) &
  load+=($!)
done
"$@"
