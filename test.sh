#!/usr/bin/env bash
# All tests: installs what is missing, builds, and runs every suite in one ctest run, whose summary
# closes the output.
#
#   ./test.sh                    everything: AddressSanitizer and ThreadSanitizer runs, and Linux
#                                siw in a virtual machine, skipped where there can be none
#   ./test.sh --no-interop       without the virtual machine
#   ./test.sh --quick            without that and without the sanitizer runs
#   ./test.sh [...] -- ARGS      pass ARGS to ctest, for example: -- -R sim
#   ./test.sh --help
#
# The tests run on the tree that run.sh builds, build/release: what is tested is what is shipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }

sanitizers=(asan tsan)
interop=ON
ctest_args=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --quick)
      sanitizers=()
      interop=OFF
      ;;
    --no-interop) interop=OFF ;;
    --)
      shift
      ctest_args=("$@")
      break
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      echo "test.sh: unknown option '$1'; it can be --quick, --no-interop, --help, or -- before ctest's own" >&2
      exit 2
      ;;
  esac
  shift
done

scripts/install-deps.sh test
scripts/build.sh release --define WEFT_TESTS=ON --define WEFT_TEST_SUITES= \
  --define "WEFT_INTEROP_TESTS=$interop" all weft_tests
for preset in "${sanitizers[@]}"; do
  scripts/build.sh "$preset" weft_tests
done

# One ctest run over all trees gives one summary.
all=build/all-tests
mkdir -p "$all"
for preset in release "${sanitizers[@]}"; do
  printf 'subdirs("%s")\n' "$PWD/build/$preset"
done >"$all/CTestTestfile.cmake"

# ThreadSanitizer of g++ 12 can't map its shadow memory when the kernel randomizes more than 28
# bits of an address; without randomization it always can.
runner=()
randomized_bits="$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)"
if [[ "$randomized_bits" -gt 28 ]] && setarch -R true 2>/dev/null; then
  runner=(setarch -R)
fi

exec "${runner[@]}" ctest --test-dir "$all" --output-on-failure --no-tests=error \
  --parallel "${WEFT_JOBS:-$(nproc)}" "${ctest_args[@]}"
