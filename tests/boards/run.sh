#!/usr/bin/env bash
# Builds the images of a board, then runs the test on them.
#
#   run.sh BOARD BUILD_DIR PROGRAM SENSOR_SERVER [board_test.py's options]
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
board="$1" build="$2" program="$3" server="$4"
shift 4
status=0
for target in weft_board_image weft_sensor_image weft_sums_image; do
  "$here/../../scripts/build-board.sh" "$board" "$build" "$target" || status=$?
  [[ $status -eq 0 ]] || exit "$status"
done
exec "$here/board_test.py" "$board" --image "$build/bin/weft-board.elf" --program "$program" \
  --sensor "$build/bin/weft-sensor.elf" --sensor-server "$server" \
  --sums "$build/bin/weft-sums.elf" "$@"
