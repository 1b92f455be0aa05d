#!/usr/bin/env bash
# Builds the Debian packages from the files of this tree, and checks them with lintian.
#
#   scripts/build-debs.sh [--quick] [--no-install] [--no-lintian] [DIR]
#
# The packages go to DIR (default: build/debs). --quick: with the compiler options of the release
# tree instead of Debian's, so that ccache has most of it; for trying, not for giving away.
# --no-install: do not install what is missing to build them. scripts/check-debs.sh then installs
# them into a bare Debian and tries them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

install=true
lintian=true
while [[ "${1:-}" == --* ]]; do
  case "$1" in
    --quick)
      export QUICK_DEBS=1
      export DEB_CFLAGS_SET="" DEB_CXXFLAGS_SET="" DEB_CPPFLAGS_SET="" DEB_LDFLAGS_SET=""
      ;;
    --no-install) install=false ;;
    --no-lintian) lintian=false ;;
    *)
      echo "build-debs.sh: unknown option '$1'; it can be --quick, --no-install or --no-lintian" >&2
      exit 2
      ;;
  esac
  shift
done
out="$(realpath -m "${1:-build/debs}")"

if $install; then scripts/install-deps.sh debs; fi
mkdir -p "$out"
rm -f "$out"/*.deb "$out"/*.buildinfo "$out"/*.changes
# Always the same folder, so that ccache recognizes what it compiled before.
work="$out/work"
rm -rf "$work"
mkdir "$work"
trap 'rm -rf "$work"' EXIT

# A copy of the files that belong to the tree, as they are now: committed or not, but no build
# output.
mkdir "$work/weft"
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [[ ! -e "$file" ]] || printf '%s\0' "$file"
  done | tar --null --files-from=- -cf - | tar -C "$work/weft" -xf -
else
  tar --exclude=./build -cf - . | tar -C "$work/weft" -xf -
fi

log="$out/build.log"
echo "Building the packages (log: $log)"
start=$SECONDS
# debhelper gives the build a home folder of its own. The caller's compiler cache is used all the
# same.
if command -v ccache >/dev/null; then
  export CCACHE_DIR="${CCACHE_DIR:-$(ccache --get-config cache_dir)}"
  export CCACHE_BASEDIR="$work/weft" CCACHE_NOHASHDIR=1
fi
export DEB_BUILD_OPTIONS="nocheck parallel=${WEFT_JOBS:-$(nproc)}"
if ! (cd "$work/weft" && dpkg-buildpackage --no-sign --build=binary) >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  echo "build-debs.sh: the packages do not build, see above and $log" >&2
  exit 1
fi
mv "$work"/*.deb "$work"/*.buildinfo "$work"/*.changes "$out/"
echo "Built in $((SECONDS - start)) s:"
(cd "$out" && ls -1sh -- *.deb)
if $lintian; then
  # The packages of debug symbols are made by debhelper; the others must be without fault.
  lintian --fail-on error,warning --tag-display-limit 0 "$out"/*.changes
  echo "lintian: no errors, no warnings"
fi
