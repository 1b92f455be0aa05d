#!/usr/bin/env bash
# Configures build/sources, for tools that read compile commands: there each source is compiled by
# itself, while build/release compiles several at once. Nothing is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
if ! cmake --preset release -B build/sources -DWEFT_UNITY=OFF -DWEFT_TESTS=ON >"$log" 2>&1; then
  cat "$log" >&2
  echo "configure-sources.sh: cannot configure build/sources, see above" >&2
  exit 1
fi
