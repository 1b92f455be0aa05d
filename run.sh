#!/usr/bin/env bash
# The main job: installs what is missing, builds, and shows RDMA beside plain TCP on this machine.
#
#   ./run.sh                compare every byte, then measure RDMA Write, Read and Send beside plain
#                           TCP: once with RDMA over TCP, once through shared memory. Then run
#                           Debian's own rping and ib_write_bw over Weft
#   ./run.sh --build-only   build every program and library, and stop; the command is
#                           build/release/bin/weft
#   ./run.sh --help
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }

targets=(weft_programs)
for arg in "$@"; do
  case "$arg" in
    --build-only) targets=(all) ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      echo "run.sh: unknown option '$arg'; it can be --build-only or --help" >&2
      exit 2
      ;;
  esac
done

scripts/install-deps.sh build
scripts/build.sh release "${targets[@]}"
if [[ "${targets[0]}" == all ]]; then
  exit 0
fi

# A verified pass first, every byte compared at its destination; then RDMA Write, Read and Send
# beside plain TCP, in interleaved rounds of one run.
build/release/bin/weft perf --self --preset main

# Programs that know nothing of Weft, and what `weft report` draws with.
if scripts/install-deps.sh programs; then
  scripts/show-programs.sh
else
  echo "rping and ib_write_bw are not shown: their packages cannot be installed, see above"
fi
