#!/usr/bin/env bash
# The tests: installs what is missing, builds, and runs them in one ctest run. Without --all, one
# more line behind ctest's summary names what was left out.
#
#   ./test.sh               unit, model, simulation, conformance and loopback tests, and unmodified
#                           programs
#   ./test.sh --all         also with AddressSanitizer and ThreadSanitizer, against Linux siw in a
#                           virtual machine, on boards under QEMU, QEMU's live migration, fio, and
#                           copies of gigabytes: two hours
#   ./test.sh [--all] -- ARGS
#                           pass ARGS to ctest, for example: -- -R sim. Without --all, tests with
#                           the label "long" do not run
#   ./test.sh --help
#
# The tests run on the tree that run.sh builds, build/release: what is tested is what is shipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }

all=false
ctest_args=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --all) all=true ;;
    --quick) ;; # older scripts give it; it is the default now
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
      echo "test.sh: unknown option '$1'; it can be --all, --help, or -- before ctest's own" >&2
      exit 2
      ;;
  esac
  shift
done

presets=(release)
if $all; then
  scripts/install-deps.sh all
  scripts/build.sh release --define WEFT_TESTS=ON --define WEFT_TEST_SUITES= \
    --define WEFT_INTEROP_TESTS=ON all weft_tests
  for preset in asan tsan; do
    scripts/build.sh "$preset" weft_tests
    presets+=("$preset")
  done
else
  scripts/install-deps.sh test
  scripts/build.sh release --define WEFT_TESTS=ON --define WEFT_TEST_SUITES= \
    --define WEFT_INTEROP_TESTS=OFF all weft_tests
  ctest_args=(--label-exclude '^long$' "${ctest_args[@]}")
  # Behind ctest's summary, whatever it says.
  trap 'echo "Left to ./test.sh --all: sanitizers, Linux siw, boards, QEMU, long copies"' EXIT
fi

# One ctest run over all trees gives one summary.
tree=build/all-tests
mkdir -p "$tree"
for preset in "${presets[@]}"; do
  printf 'subdirs("%s")\n' "$PWD/build/$preset"
done >"$tree/CTestTestfile.cmake"

# ThreadSanitizer of g++ 12 can't map its shadow memory when the kernel randomizes more than 28
# bits of an address; without randomization it always can.
runner=()
randomized_bits="$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)"
if $all && [[ "$randomized_bits" -gt 28 ]] && setarch -R true 2>/dev/null; then
  runner=(setarch -R)
fi

# A test takes two places, one that waits one: see _weft_test_properties() in cmake/Weft.cmake.
"${runner[@]}" ctest --test-dir "$tree" --output-on-failure --no-tests=error \
  --parallel "$((3 * ${WEFT_JOBS:-$(nproc)}))" "${ctest_args[@]}"
