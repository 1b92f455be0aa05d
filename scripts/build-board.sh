#!/usr/bin/env bash
# Builds the image for a board, with the small profile, and prints what it needs of ROM and RAM.
#
#   scripts/build-board.sh BOARD [BUILD_DIR [TARGET [-DNAME=VALUE]...]]
#
#   mps2-an385   Cortex-M3, LAN9118            arm-none-eabi-g++
#   mipssim      MIPS32, big-endian, mipsnet   mips-linux-gnu-g++
#
# A board is a folder of src/lwip/board and a file of cmake/toolchains. The image is
# BUILD_DIR/bin/weft-board.elf; BUILD_DIR is build/board-BOARD unless given. TARGET is
# weft_board_image; weft_board_bench builds the one of bench/embedded instead, weft_sensor_image
# that of examples/embedded. -D sets a size, see src/lwip/board/CMakeLists.txt. Exit status 77: the
# compiler or lwIP's source is not there, and a line says which.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

board="${1:-}"
toolchain="cmake/toolchains/$board.cmake"
if [[ -z "$board" || ! -d "src/lwip/board/$board" || ! -f "$toolchain" ]]; then
  echo "build-board.sh: unknown board '$board'; there are" \
    "$(for at in src/lwip/board/*/board.c; do basename "$(dirname "$at")"; done | xargs)" >&2
  exit 2
fi
compiler="$(sed -n 's/^set(CMAKE_CXX_COMPILER \(.*\))$/\1/p' "$toolchain")"
prefix="${compiler%-g++}"
build="${2:-build/board-$board}"
target="${3:-weft_board_image}"
if ! command -v "$compiler" >/dev/null; then
  echo "build-board.sh: $compiler is not installed (scripts/install-deps.sh all)" >&2
  exit 77
fi
lwip="$(scripts/get-lwip.sh)"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  --toolchain "$PWD/$toolchain" -DWEFT_BOARD="$board" -DWEFT_LWIP_DIR="$lwip" \
  -DWEFT_CORE_ONLY=ON -DWEFT_TESTS=OFF "${@:4}" >/dev/null
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
