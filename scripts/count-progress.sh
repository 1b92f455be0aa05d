#!/usr/bin/env bash
# Counts what makes progress hard to reason about: atomic variables and constants of the code that
# runs connections, in the tree as it is or at a revision.
#
#   scripts/count-progress.sh [REVISION]...
#
# Counted is what does one job at every revision: src/progress, and what it was before, the pollers,
# lanes, paths and rings in src/verbs. Both times with the run lock and the device's list of shards.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

files=(src/progress src/{io,os}/kick_lock.h ':(glob)src/verbs/'{poller,lane,path_change,rings}.{h,cc}
       ':(glob)src/verbs/device_'{pollers,shards}.cc)
atomic='std::atomic<.*> *[a-z_]+(\{|;|,)'
constant='^ *(static |inline )*constexpr [A-Za-z_:0-9<> ]+ k[A-Z][A-Za-z0-9]* *(=|\{)'
bit='constexpr Word k'

count() { { git grep -hE "$1" ${2:+"$2"} -- "${files[@]}" || true; } | grep -cE "${3:-.}" || true; }

for revision in "${@:-}"; do
  echo "${revision:-work tree}: $(count "$atomic" "$revision") atomic variables," \
    "$(count "$constant" "$revision") constants," \
    "$(count "$constant" "$revision" "$bit") of them states and bits of the lane's word"
done
