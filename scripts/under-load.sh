#!/usr/bin/env bash
# Runs a command while every core has something else to do, at the same priority: what only works
# on an idle machine fails here.
#
#   scripts/under-load.sh [--after PID] COMMAND [ARGUMENT...]
#
# --after PID: process PID is that work already, as long as it runs.
# Ends with the status of the command; the load ends with it.
set -uo pipefail
after=""
if [[ "${1:-}" == --after ]]; then
  after="${2:?--after needs a process}"
  shift 2
fi
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
  (
    while [[ -n "$after" && -d "/proc/$after" && -d /proc/$$ ]]; do sleep 1; done
    while [[ -d /proc/$$ ]]; do for ((i = 0; i < 100000; ++i)); do :; done; done
  ) &
  load+=($!)
done
"$@"
