#!/usr/bin/env bash
# Builds UCX's own gtest from Debian's source, with Debian's options, and prints the program. A
# build is kept beside the source. It takes about a quarter of an hour of one core, once.
#
#   tests/suites/build-ucx.sh
#
# Only the tests of transports and of UCP are compiled: those of UCX's base library (ucs/) and of
# its memory hooks know no device. Two files of ucs/ stay, since others use what they define.
#
# Exit status 77: the source cannot be had here; a line says why.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source="$("$here/get-source.sh" ucx 1.13.1-1)"
program="$source/test/gtest/gtest"
stamp="$source/.weft-built"
if [[ -f "$stamp" && -x "$program" ]]; then
  echo "$program"
  exit 0
fi

# One build at a time; the second caller finds it done.
exec 9>"$source/.weft-lock"
flock 9
if [[ ! -f "$stamp" ]]; then
  log="$source/weft-build.log"
  {
    cd "$source"
    # Debian's packages of UCX are built with these; gtest needs assertions of its own only.
    options=(--enable-mt --with-verbs --with-rdmacm --disable-numa --disable-backtrace-detail
      --disable-logging --enable-cma --enable-gtest --without-java --without-go --without-cuda
      --without-rocm --without-fuse3 --disable-doxygen-doc --with-avx=no)
    # The list of ucs/ is the last part of the sources' list.
    sed -i '\,^\tucp/ucp_datatype\.cc,,\,^\tucs/arch/,c\\tucp/ucp_datatype.cc' \
      test/gtest/Makefile.am
    ./autogen.sh
    ./configure "${options[@]}" CC="${CC:-gcc}" CXX="${CXX:-g++}" CFLAGS=-O2
    for part in ucm ucs uct ucp tools/perf/lib; do make -j"$(nproc)" -C "src/$part"; done
    # gcc 12 warns of what UCX's tests of malloc do on purpose, and UCX makes warnings errors.
    make -j"$(nproc)" -C test/gtest CXXFLAGS="-O0 -Wno-error"
  } >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    echo "build-ucx.sh: UCX's gtest could not be built; the whole log is $log" >&2
    exit 1
  }
  touch "$stamp"
fi
echo "$program"
