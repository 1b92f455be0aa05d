#!/usr/bin/env bash
# Builds the protocol core (base, wire, proto) and its tests for other machines, and runs the tests
# under user-mode QEMU:
#
#   powerpc   32 bits, big-endian
#   aarch64   64 bits, little-endian, without ISA-L
#
#   scripts/check-portable.sh [MACHINE]...
#
# A machine without its Debian cross compiler is skipped, with a line that says so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

machines=("$@")
if [[ ${#machines[@]} -eq 0 ]]; then
  machines=(powerpc aarch64)
fi

check_machine() {
  local machine="$1" compiler emulator
  case "$machine" in
    powerpc) compiler=powerpc-linux-gnu-g++ emulator=qemu-ppc-static ;;
    aarch64) compiler=aarch64-linux-gnu-g++ emulator=qemu-aarch64-static ;;
    *)
      echo "check-portable.sh: unknown machine '$machine'; it can be powerpc or aarch64" >&2
      exit 2
      ;;
  esac
  local tool
  for tool in "$compiler" "$emulator"; do
    if ! command -v "$tool" >/dev/null; then
      echo "portable: $machine skipped, $tool is not installed (scripts/install-deps.sh ci)"
      return 0
    fi
  done
  local build="build/portable-$machine"
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    --toolchain "$PWD/cmake/toolchains/$machine.cmake" \
    -DWEFT_CORE_ONLY=ON -DWEFT_TESTS=ON -DWEFT_TEST_PREFIX="$machine." \
    -DWEFT_TEST_SUITES="unit;model" >/dev/null
  cmake --build "$build" --parallel "${WEFT_JOBS:-$(nproc)}" --target all weft_tests
  ctest --test-dir "$build" --output-on-failure --no-tests=error \
    --parallel "$((2 * ${WEFT_JOBS:-$(nproc)}))"
}

for machine in "${machines[@]}"; do
  check_machine "$machine"
done
