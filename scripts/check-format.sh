#!/usr/bin/env bash
# Checks that every tracked C and C++ file is as clang-format would write it.
#
#   scripts/check-format.sh         list what differs
#   scripts/check-format.sh --fix   rewrite it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=(--dry-run --Werror)
case "${1:-}" in
  "") ;;
  --fix) mode=(-i) ;;
  *)
    echo "check-format.sh: unknown option '$1'; it can be --fix" >&2
    exit 2
    ;;
esac

# Corpora and captures are data even where their names look like code.
git ls-files -z -- '*.h' '*.hpp' '*.c' '*.cc' ':!fuzz/corpus' ':!tests/vectors' |
  xargs -0 --no-run-if-empty clang-format --style=file "${mode[@]}"
echo "format: clean"
