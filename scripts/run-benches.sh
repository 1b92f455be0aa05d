#!/usr/bin/env bash
# Builds and runs the Google Benchmark programs of bench/.
#
#   scripts/run-benches.sh             full run
#   scripts/run-benches.sh --smoke     each case briefly, to see that it still works
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

args=()
case "${1:-}" in
  "") ;;
  --smoke) args=(--benchmark_min_time=0.01) ;;
  *)
    echo "run-benches.sh: unknown option '$1'; it can be --smoke" >&2
    exit 2
    ;;
esac

scripts/build.sh release weft_benches
shopt -s nullglob
benches=(build/release/bin/weft_bench_*)
if [[ ${#benches[@]} -eq 0 ]]; then
  echo "run-benches.sh: no benchmark was built; is libbenchmark-dev installed?" >&2
  exit 1
fi
for bench in "${benches[@]}"; do
  "$bench" "${args[@]}"
done
