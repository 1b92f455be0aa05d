#!/usr/bin/env bash
# Gets the source of lwIP, as Debian ships it: its binary package is a library for Linux with
# options that do not suit a microcontroller. Prints the folder.
#
#   scripts/get-lwip.sh
#
# The folder is $WEFT_LWIP_DIR, or ~/.cache/weft/lwip-VERSION. What is there is kept, so that only
# the first call needs the network. apt checks signature and checksums; the version is pinned here.
# The machine's own lists of packages stay as they are.
#
# Exit status 77: it cannot be had here; a line says why.
set -euo pipefail

version=2.1.3+dfsg1-2
folder="${WEFT_LWIP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/weft/lwip-$version}"
stamp="$folder/.weft-version"

if [[ -f "$stamp" && "$(cat "$stamp")" == "$version" ]]; then
  echo "$folder"
  exit 0
fi

give_up() {
  echo "get-lwip.sh: no source of lwIP: $1" >&2
  exit 77
}
for tool in apt-get dpkg-source; do
  command -v "$tool" >/dev/null || give_up "$tool is missing (package dpkg-dev)"
done

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/sources"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[[ -f "$keys" ]] || give_up "$keys is missing (package debian-archive-keyring)"
echo "deb-src [signed-by=$keys] http://deb.debian.org/debian bookworm main" \
  >"$work/sources/source.list"
apt_get() {
  apt-get -q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/sources" \
    -o "Dir::State::lists=$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
    -o APT::Sandbox::User= "$@"
}
if ! { apt_get update && cd "$work" && apt_get source --download-only "lwip=$version"; } \
  >"$work/log" 2>&1 </dev/null; then
  tail -n 5 "$work/log" >&2
  give_up "apt-get source lwip=$version failed, see above"
fi
dpkg-source -x "$work"/lwip_*.dsc "$work/tree" >>"$work/log" 2>&1 || give_up "dpkg-source failed"
echo "$version" >"$work/tree/.weft-version"
mkdir -p "$(dirname "$folder")"
rm -rf "$folder"
# By one rename, so that two calls at a time do no harm; who comes second finds it made.
mv -T "$work/tree" "$folder" 2>/dev/null || [[ -f "$stamp" ]] || give_up "cannot write $folder"
echo "$folder"
