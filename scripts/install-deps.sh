#!/usr/bin/env bash
# Installs the Debian 12 packages that Weft needs, those that are missing only.
#
#   scripts/install-deps.sh [build|programs|test|all|ci|suites|debs]
#
#   build      compile the libraries and programs (what run.sh needs)
#   programs   the RDMA programs that run.sh shows running over Weft, and what `weft report` needs
#   test       build, and all that the tests use (what test.sh needs); the default
#   all        test, and the cross compilers and QEMU for boards and virtual machines (what
#              test.sh --all needs)
#   ci         test, the cross compilers and QEMU for boards, clang and linters (what .ci/run
#              needs)
#   suites     test, and what other people's suites are built with (tests/suites)
#   debs       build, and what makes and checks Debian packages (scripts/build-debs.sh)
#
# Uses sudo when not root. docs/dependencies.md says what each package is for.
set -euo pipefail

build_packages=(
  g++ cmake ninja-build pkg-config
  libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libexpected-dev libboost-dev
  libibverbs-dev librdmacm-dev liburing-dev libdw-dev libssl-dev libfuse3-dev libsdl2-dev iproute2 procps
)
program_packages=(rdmacm-utils perftest python3 python3-jinja2 python3-matplotlib)
test_packages=(
  libgtest-dev libgmock-dev libbenchmark-dev tshark systemd
  ibverbs-utils "${program_packages[@]}" dpkg-dev
  apache2-utils curl git haproxy memcached netcat-openbsd netcat-traditional nginx-light nodejs
  openssh-client openssh-server openssl postgresql redis-server redis-tools rsync
  python3-yaml python3-pyverbs iperf3 sockperf qperf ucx-utils libucx-dev
  openmpi-bin python3-mpi4py netpipe-openmpi mpich
  libfabric-bin bindfs fio fuse3 wrk xvfb
  dapl2-utils libdapl2 libiscsi-bin tgt
)
ci_packages=(
  clang clang-format clang-tidy libclang-rt-14-dev ccache
  libpython3.11-testsuite
  shellcheck googletest g++-powerpc-linux-gnu g++-aarch64-linux-gnu qemu-user-static
)
# What other people's suites are built with: those of tests/suites.
suites_packages=(autoconf automake libtool make libgloo-dev libpython3.11-testsuite tcl)
debs_packages=(debhelper dpkg-dev fakeroot lintian mmdebstrap pkgconf python3)
# For Linux siw in a virtual machine, and programs that need many other packages.
vm_packages=(qemu-system-x86 cpio kmod xz-utils qemu-utils qemu-block-extra fio)
board_packages=(
  qemu-system-arm qemu-system-mips gcc-arm-none-eabi libnewlib-arm-none-eabi
  libstdc++-arm-none-eabi-newlib g++-mips-linux-gnu
)

set="${1:-test}"
case "$set" in
  build) packages=("${build_packages[@]}") ;;
  programs) packages=("${program_packages[@]}") ;;
  test) packages=("${build_packages[@]}" "${test_packages[@]}") ;;
  all)
    packages=("${build_packages[@]}" "${test_packages[@]}" "${board_packages[@]}"
      "${vm_packages[@]}")
    ;;
  ci)
    packages=("${build_packages[@]}" "${test_packages[@]}" "${board_packages[@]}"
      "${ci_packages[@]}")
    ;;
  suites) packages=("${build_packages[@]}" "${test_packages[@]}" "${suites_packages[@]}") ;;
  debs) packages=("${build_packages[@]}" "${debs_packages[@]}") ;;
  *)
    echo "install-deps.sh: unknown set '$1'; it can be build, programs, test, all, ci, suites or debs" >&2
    exit 2
    ;;
esac

# ISA-L is assembler for x86-64; elsewhere Weft computes CRC32C with its own code.
if [[ "${1:-test}" != programs && "$(dpkg --print-architecture 2>/dev/null || true)" == amd64 ]]
then
  packages+=(libisal-dev)
fi

is_installed() {
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

if ! command -v dpkg-query >/dev/null; then
  echo "install-deps.sh: this is not a Debian system. Install by hand: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done

# Its tests are skipped without it, so a machine without the network is no failure.
get_lwip() {
  case "${set}" in
    test | all | ci) "$(dirname "${BASH_SOURCE[0]}")/get-lwip.sh" >/dev/null || true ;;
  esac
}
if [[ ${#missing[@]} -eq 0 ]]; then
  get_lwip
  exit 0
fi

as_root=()
if [[ "$(id -u)" -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "install-deps.sh: neither root nor sudo at hand. Ask an administrator to run:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "Installing ${#missing[@]} packages: ${missing[*]}"
# noninteractive: tshark would ask whether users other than root may capture.
apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 \
    -o Dpkg::Use-Pty=0 "$@"
}
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
if ! { apt_get update && apt_get -y --no-install-recommends install "${missing[@]}"; } \
  >"$log" 2>&1 </dev/null; then
  tail -n 40 "$log" >&2
  echo "install-deps.sh: apt-get failed, see above. Wanted: ${missing[*]}" >&2
  exit 1
fi
get_lwip
