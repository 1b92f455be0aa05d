#!/usr/bin/env bash
# Programs of later releases of rdma-core on Weft's libraries. For each release, taken as source
# from Debian's later suites:
#
#   symbols   each public function of its libibverbs and librdmacm is in Weft's, under its version
#   programs  programs compiled with its headers start and work: rping of that release, and a plain
#             verbs program
#
#   scripts/check-newer-verbs.sh [SUITE...]     default: trixie sid
#
# Only the tar files with the original source are needed; apt checks signatures and checksums. They
# are kept in ~/.cache/weft. Exit status 77: no release can be had here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

suites=("$@")
[[ $# -gt 0 ]] || suites=(trixie sid)
cache="${XDG_CACHE_HOME:-$HOME/.cache}/weft"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache" "$work/lists/partial" "$work/sources"

keys=/usr/share/keyrings/debian-archive-keyring.gpg
for suite in "${suites[@]}"; do
  echo "deb-src [signed-by=$keys] http://deb.debian.org/debian $suite main"
done >"$work/sources/source.list"
options=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/sources"
  -o "Dir::State::lists=$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
  -o APT::Sandbox::User=)

versions=()
if apt-get -q "${options[@]}" update >"$work/log" 2>&1 </dev/null; then
  mapfile -t versions < <(apt-cache "${options[@]}" showsrc rdma-core | sed -n 's/^Version: //p' |
    sort -uV)
fi
for version in "${versions[@]}"; do
  tar="$cache/rdma-core_${version%-*}.orig.tar.gz"
  [[ -f "$tar" ]] && continue
  # A mirror may have the original source and lack the files of Debian's changes.
  (cd "$work" && apt-get -q "${options[@]}" source --download-only "rdma-core=$version") \
    >>"$work/log" 2>&1 </dev/null || true
  [[ ! -f "$work/${tar##*/}" ]] || mv "$work/${tar##*/}" "$tar"
done

scripts/build.sh release weft_ibverbs weft_rdmacm weft_command
libs="$PWD/build/release/lib/weft"

# public_symbols FILE.map: "function@NODE" of the public nodes. Left out are the functions of
# IBVERBS_1.0 that IBVERBS_1.1 defines anew: only programs built before 2007 ask for them.
public_symbols() {
  sed 's,/\*.*\*/,,' "$1" | awk '
    /^[A-Z_]+[0-9.]+ *\{|^(IBVERBS|RDMACM)_[0-9.]+/ { node = $1; sub(/\{.*/, "", node); next }
    /^[A-Z].*PRIVATE|@IBVERBS_PABI/ { node = ""; next }
    /^[ \t]*(global|local)[ \t]*:/ { here = ($1 ~ /global/); next }
    /^}/ { node = ""; next }
    node != "" && here && match($0, /[a-z_][a-z0-9_]+;/) {
      print substr($0, RSTART, RLENGTH - 1) "@" node }' | sort -u >"$work/all"
  sed -n 's/@IBVERBS_1\.1$/@IBVERBS_1.0/p' "$work/all" | comm -23 "$work/all" -
}
# own_symbols LIBRARY: the same of a library.
own_symbols() {
  nm --dynamic --with-symbol-versions --defined-only "$1" | awk '{ sub(/@@/, "@", $3); print $3 }' |
    sort -u
}

# try RELEASE: everything about one release. 1: something is missing.
try() {
  local tree include library missing
  tar -C "$work" -xzf "$cache/rdma-core_$1.orig.tar.gz"
  tree="$(find "$work" -path '*/libibverbs/verbs.h' -printf '%h\n' -quit)"
  tree="${tree%/libibverbs}"
  for library in libibverbs librdmacm; do
    public_symbols "$tree/$library/$library".map* >"$work/theirs"
    own_symbols "$libs/$library.so.1" >"$work/ours"
    missing="$(comm -23 "$work/theirs" "$work/ours")"
    echo "  $library: $(wc -l <"$work/theirs") public functions"
    [[ -s "$work/theirs" ]] || { echo "  $library: no symbols found in its map" >&2; return 1; }
    [[ -z "$missing" ]] || { echo "  not in Weft's $library: $missing" >&2; return 1; }
  done
  include="$work/include"
  rm -rf "$include"
  mkdir -p "$include/infiniband" "$include/rdma"
  cp "$tree"/libibverbs/{verbs,verbs_api,tm_types,opcode,sa,arch,marshall,sa-kern-abi}.h \
    "$tree"/kernel-headers/rdma/ib_user_ioctl_verbs.h "$include/infiniband/"
  cp "$tree"/librdmacm/*.h "$include/rdma/"
  local flags=(-D_GNU_SOURCE -O1 -w "-I$include" "-L$libs" "-Wl,-rpath-link,$libs")
  gcc "${flags[@]}" "-I$tree/util" "-I$tree/ccan" "-I$tree" -o "$work/rping" \
    "$tree"/librdmacm/examples/{rping,common}.c -lrdmacm -libverbs -lpthread
  gcc "${flags[@]}" -o "$work/plain" bench/dropin/dropin_perf.c bench/dropin/dropin_side.c \
    -libverbs -lrdmacm
  timeout 60 build/release/bin/weft run -- "$work/plain" 4096 0.1 0.1 >"$work/plain.log"
  run_rping
  rm -rf "$tree"
  echo "  programs built with its headers: rping and a plain verbs program ran"
}

# A server on a port that is free now, and a client that tries until the server listens.
run_rping() {
  local port server
  port="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')"
  timeout 60 build/release/bin/weft run -- "$work/rping" -s -a 127.0.0.1 -p "$port" -C 3 -V \
    >"$work/server.log" 2>&1 &
  server=$!
  for ((tenths = 0; tenths < 200; tenths++)); do
    [[ -z "$(ss --listening --tcp --numeric --no-header "sport = :$port")" ]] || break
    sleep 0.1
  done
  timeout 60 build/release/bin/weft run -- "$work/rping" -c -a 127.0.0.1 -p "$port" -C 3 -V \
    >"$work/client.log" 2>&1 || { cat "$work/client.log" "$work/server.log" >&2; return 1; }
  wait "$server"
}

tried=0
for version in "${versions[@]}"; do
  release="${version%-*}"
  [[ -f "$cache/rdma-core_$release.orig.tar.gz" ]] || continue
  echo "rdma-core $release"
  try "$release"
  tried=$((tried + 1))
done
if [[ $tried -eq 0 ]]; then
  tail -n 3 "$work/log" >&2
  echo "check-newer-verbs.sh: skipped: no source of rdma-core from ${suites[*]} can be had here"
  exit 77
fi
echo "newer verbs: $tried releases of rdma-core, all of their public functions and programs"
