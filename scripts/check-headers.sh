#!/usr/bin/env bash
# Checks that each header compiles alone, and that the public ones need nothing but include/. Those
# that include lwIP's are left out: they compile with the options of a board only (src/lwip).
#
#   scripts/check-headers.sh [FOLDER]...     those of include and src; CXX names the compiler (g++)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folders=("$@")
[[ ${#folders[@]} -gt 0 ]] || folders=(include src)

export CXX="${CXX:-g++}"

# shellcheck disable=SC2016  # expanded by the inner shell
compile_one='
  header="$1"
  include_dirs=(-Iinclude)
  [[ "$header" == include/* ]] || include_dirs+=(-Isrc)
  if ! output="$("$CXX" -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion \
    -Werror "${include_dirs[@]}" -x c++ - <<<"#include \"$PWD/$header\"" 2>&1)"; then
    printf "%s does not compile alone:\n%s\n" "$header" "$output"
    exit 1
  fi
'

mapfile -d '' headers < <(find "${folders[@]}" -name '*.h' -print0 |
  xargs -0 grep -LZ '#include <lwip/' | sort -z)
printf '%s\0' "${headers[@]}" | xargs -0 -P 2 -I{} bash -c "$compile_one" _ {}
echo "headers: ${#headers[@]} compile alone"
