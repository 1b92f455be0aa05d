#!/usr/bin/env bash
# Configures (when needed) and builds one preset.
#
#   scripts/build.sh PRESET [--define VAR=VALUE]... [TARGET]...
#
# Without targets: libraries and programs. Output is shown when something fails, and a line of
# progress otherwise. WEFT_JOBS sets the number of compilers that run at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ $# -lt 1 ]]; then
  echo "usage: scripts/build.sh PRESET [--define VAR=VALUE]... [TARGET]..." >&2
  exit 2
fi
preset="$1"
shift
defines=()
while [[ "${1:-}" == --define ]]; do
  defines+=("-D${2:?--define needs VAR=VALUE}")
  shift 2
done
targets=("${@:-all}")
jobs="${WEFT_JOBS:-$(nproc)}"

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" "${defines[@]}" >"$log" 2>&1; then
  cat "$log" >&2
  echo "build.sh: cannot configure preset '$preset', see above" >&2
  exit 1
fi
echo "Building preset $preset: ${targets[*]}"
start=$SECONDS
if ! cmake --build "build/$preset" --parallel "$jobs" --target "${targets[@]}" >"$log" 2>&1; then
  cat "$log" >&2
  echo "build.sh: preset '$preset' does not build, see above" >&2
  exit 1
fi
echo "Built preset $preset in $((SECONDS - start)) s"
