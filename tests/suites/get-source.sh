#!/usr/bin/env bash
# Gets the source of a Debian package with Debian's patches applied, for the suites that are in no
# binary package. Prints the folder.
#
#   tests/suites/get-source.sh PACKAGE VERSION
#
# The folder is PACKAGE-VERSION in $WEFT_SUITES_DIR, or in ~/.cache/weft/suites. What is there is
# kept, so only the first call needs the network. apt checks signature and checksums. The machine's
# own lists of packages stay as they are.
#
# Exit status 77: the source cannot be had here; a line says why.
set -euo pipefail

package="$1"
version="$2"
folder="${WEFT_SUITES_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/weft/suites}/$package-$version"
stamp="$folder/.weft-version"

if [[ -f "$stamp" && "$(cat "$stamp")" == "$version" ]]; then
  echo "$folder"
  exit 0
fi

give_up() {
  echo "get-source.sh: no source of $package: $1" >&2
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
if ! { apt_get update && cd "$work" && apt_get source --download-only "$package=$version"; } \
  >"$work/log" 2>&1 </dev/null; then
  tail -n 5 "$work/log" >&2
  give_up "apt-get source $package=$version failed, see above"
fi
dpkg-source -x "$work/${package}"_*.dsc "$work/tree" >>"$work/log" 2>&1 ||
  give_up "dpkg-source failed"
echo "$version" >"$work/tree/.weft-version"
mkdir -p "$(dirname "$folder")"
rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
# The copy has a name of its own until it is whole: two calls at a time do no harm.
cp -a "$work/tree" "$folder.$$"
mv -T "$folder.$$" "$folder" 2>/dev/null || rm -rf "$folder.$$"
[[ -f "$stamp" ]] || give_up "cannot write $folder"
echo "$folder"
