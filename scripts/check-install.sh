#!/usr/bin/env bash
# Installs the release tree into an empty folder, then builds and runs a program against it, once
# by find_package(Weft) and once by pkg-config, with nothing of this tree in its include path; and a
# plain verbs program, built against rdma-core as Debian has it, on the installed drop-in libraries.
#
#   scripts/check-install.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
prefix="$work/prefix"

scripts/build.sh release
cmake --install build/release --prefix "$prefix" >"$work/install.log"

mkdir "$work/consumer"
cat >"$work/consumer/main.cc" <<'SOURCE'
#include <weft/weft.h>

#include <iostream>

int main() {
  const auto device = weft::Device::open(weft::Config{});
  if (!device) {
    std::cerr << weft::describe(device.error()) << '\n';
    return 1;
  }
  std::cout << "opened a device\n";
}
SOURCE
cat >"$work/consumer/CMakeLists.txt" <<'LISTS'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(Weft REQUIRED)
add_executable(shared main.cc)
target_link_libraries(shared PRIVATE Weft::weft)
add_executable(static main.cc)
target_link_libraries(static PRIVATE Weft::weft_static)
LISTS

cmake -S "$work/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/configure.log" ||
  { cat "$work/configure.log" && exit 1; }
cmake --build "$work/build" >"$work/build.log" || { cat "$work/build.log" && exit 1; }
"$work/build/shared"
"$work/build/static"

libdir="$(dirname "$(find "$prefix" -name libweft.so -print -quit)")"
export PKG_CONFIG_PATH="$libdir/pkgconfig"
# --define-variable: the file names the final prefix, here it is a scratch folder.
read -ra flags <<<"$(pkg-config --define-variable=libdir="$libdir" \
  --define-variable=includedir="$prefix/include" --cflags --libs weft)"
g++ -std=c++20 "$work/consumer/main.cc" -o "$work/by-pkg-config" "${flags[@]}"
LD_LIBRARY_PATH="$libdir" "$work/by-pkg-config"

"$prefix/bin/weft" --version

# Knows nothing of Weft: a connection to itself over rdma_cm, and one RDMA Write.
gcc -D_GNU_SOURCE -O2 -o "$work/plain" bench/dropin/dropin_perf.c bench/dropin/dropin_side.c \
  -libverbs -lrdmacm
"$prefix/bin/weft" devices >"$work/devices.log"
grep -q weft0 "$work/devices.log" || { cat "$work/devices.log" && exit 1; }
timeout 60 "$prefix/bin/weft" run -- "$work/plain" 4096 0.1 0.1
timeout 60 env LD_LIBRARY_PATH="$libdir/weft" "$work/plain" 4096 0.1 0.1
# Moved as a whole, as packages are.
mv "$prefix" "$work/moved"
timeout 60 "$work/moved/bin/weft" run --preload -- "$work/plain" 4096 0.1 0.1
echo "install: consumers by CMake (shared, static) and pkg-config, and plain verbs programs, run"
