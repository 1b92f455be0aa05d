#!/usr/bin/env bash
# Runs clang-tidy, naming rules included (.clang-tidy), over the engine.
#
#   scripts/check-tidy.sh [FILE]...     default: every file of the layers below the adapters
#
# Reads the compile commands of build/sources, which knows each source by itself and is configured
# here, never built. WEFT_TIDY_TIMEOUT_S bounds the run (1500).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/configure-sources.sh
build=build/sources

if [[ $# -gt 0 ]]; then
  files=("$@")
else
  mapfile -d '' files < <(git ls-files -z -- 'src/base/*.cc' 'src/wire/*.cc' 'src/proto/*.cc' 'src/os/*.cc' 'src/shm/*.cc' 'src/io/*.cc' 'src/progress/*.cc' 'src/verbs/*.cc')
fi

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
status=0
printf '%s\0' "${files[@]}" |
  timeout "${WEFT_TIDY_TIMEOUT_S:-1500}" xargs -0 -P "${WEFT_JOBS:-$(nproc)}" -n 4 \
    clang-tidy --quiet -p "$build" >"$log" 2>&1 || status=$?
if [[ $status -ne 0 ]]; then
  # A finding in a header shows once for each file that includes it.
  grep -E '(warning|error):' "$log" | sort -u || tail -n 40 "$log"
  if [[ $status -eq 124 ]]; then
    echo "clang-tidy: ran out of time"
  fi
  echo "clang-tidy: findings above"
  exit 1
fi
echo "clang-tidy: ${#files[@]} files clean"
