#!/usr/bin/env bash
# Builds the tests of libuv, libevent or Redis from Debian's source, unmodified. Prints the folder
# where they lie.
#
#   tests/suites/build-sockets.sh libuv|libevent|redis [--where]
#
# --where: prints it without building. Exit status 77: the source cannot be had here.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
case "$1" in
  libuv) source=(libuv1 "1.44.2-1+deb12u1") made=build/uv_run_tests ;;
  libevent) source=(libevent 2.1.12-stable-8) made=build/bin/regress ;;
  redis) source=(redis "5:7.0.15-1~deb12u7") made=src/redis-server ;;
  *)
    echo "build-sockets.sh: '$1' is none of libuv, libevent, redis" >&2
    exit 2
    ;;
esac

kept="${WEFT_SUITES_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/weft/suites}"
folder="$kept/built-$1"
if [[ "${2:-}" != --where && ! -x "$folder/$made" ]]; then
  tree="$(./get-source.sh "${source[@]}")"
  rm -rf "$folder"
  cp -a "$tree" "$folder"
  cd "$folder"
  {
    case "$1" in
      libuv)
        cmake -S . -B build -G Ninja -DBUILD_TESTING=ON
        cmake --build build --target uv_run_tests
        ;;
      libevent)
        cmake -S . -B build -G Ninja -DEVENT__DISABLE_MBEDTLS=ON -DEVENT__DISABLE_BENCHMARK=ON \
          -DEVENT__DISABLE_SAMPLES=ON
        cmake --build build --target regress
        ;;
      redis) make -j"$(nproc)" MALLOC=libc BUILD_TLS=no ;;
    esac
  } >&2
fi
echo "$folder"
