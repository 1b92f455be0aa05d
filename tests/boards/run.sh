#!/usr/bin/env bash
# Builds the image of a board, then runs the test on it.
#
#   run.sh BOARD BUILD_DIR PROGRAM [board_test.py's options]
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
board="$1" build="$2" program="$3"
shift 3
status=0
"$here/../../scripts/build-board.sh" "$board" "$build" || status=$?
[[ $status -eq 0 ]] || exit "$status"
exec "$here/board_test.py" "$board" --image "$build/bin/weft-board.elf" --program "$program" "$@"
