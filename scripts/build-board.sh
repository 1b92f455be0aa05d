#!/usr/bin/env bash
# Builds the image for a board, with the small profile, and prints what it needs of ROM and RAM.
#
#   scripts/build-board.sh BOARD [BUILD_DIR] [TARGET]
#
#   mps2-an385   Cortex-M3, LAN9118            arm-none-eabi-g++
#   mipssim      MIPS32, big-endian, mipsnet   mips-linux-gnu-g++
#
# The image is BUILD_DIR/bin/weft-board.elf; BUILD_DIR is build/board-BOARD unless given. TARGET
# weft_board_bench builds the one of bench/embedded instead, weft_sensor_image that of
# examples/embedded. Exit status 77: the compiler or lwIP's source is not there, and a line says
# which.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

board="${1:-}"
case "$board" in
  mps2-an385) prefix=arm-none-eabi ;;
  mipssim) prefix=mips-linux-gnu ;;
  *)
    echo "build-board.sh: unknown board '$board'; it can be mps2-an385 or mipssim" >&2
    exit 2
    ;;
esac
build="${2:-build/board-$board}"
target="${3:-weft_board_image}"
if ! command -v "$prefix-g++" >/dev/null; then
  echo "build-board.sh: $prefix-g++ is not installed (scripts/install-deps.sh boards)" >&2
  exit 77
fi
lwip="$(scripts/get-lwip.sh)"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  --toolchain "$PWD/cmake/toolchains/$board.cmake" -DWEFT_BOARD="$board" -DWEFT_LWIP_DIR="$lwip" \
  -DWEFT_CORE_ONLY=ON -DWEFT_TESTS=OFF >/dev/null
cmake --build "$build" --target "$target"
[[ "$target" == weft_board_image ]] || exit 0
image="$build/bin/weft-board.elf"
"$prefix-size" "$image"
# What takes the RAM. weft_agents: two connections, with what the demo keeps of them.
"$prefix-nm" --demangle --print-size --size-sort --reverse-sort --radix=d "$image" | awk '
  $3 ~ /^[bBdD]$/ && lines < 8 {
    name = $4
    for (i = 5; i <= NF; i++) name = name " " $i
    printf "%7d octets of RAM: %s\n", $2, name
    lines++
  }'
