#!/usr/bin/env bash
# Checks that the protocol core knows no operating system: base, wire, proto and roce may call the
# C++ library, memory and string functions, each other, and nothing else.
#
#   scripts/check-purity.sh [BUILD_DIR]     default build/release
#
# The list below is of what is allowed, so that a new system call is found without having been
# thought of.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build="${1:-build/release}"
archives=()
for layer in base wire proto roce; do
  archive="$build/lib/libweft_$layer.a"
  if [[ ! -f "$archive" ]]; then
    echo "check-purity.sh: $archive is missing; build it first: scripts/build.sh release" >&2
    exit 1
  fi
  archives+=("$archive")
done

allowed=(
  # Memory and strings.
  'malloc' 'calloc' 'realloc' 'aligned_alloc' 'free'
  'mem(cpy|move|set|cmp|chr)' 'str(len|cmp|ncmp|chr)' 'bcmp'
  '_Zn[wa][mj](St11align_val_t|RKSt9nothrow_t)?' '_Zn[wa][mj]St11align_val_tRKSt9nothrow_t'
  '_Zd[la]Pv([mj](St11align_val_t)?|St11align_val_t|RKSt9nothrow_t)?'
  '_ZSt7nothrow'
  # Bugs end the program.
  '__assert_fail' 'abort' '__stack_chk_fail(_local)?' '_ZSt9terminatev'
  '_ZSt21__glibcxx_assert_fail.*' '_ZSt[0-9]+__throw_.*'
  # What the compiler itself calls.
  '__cxa_(begin_catch|end_catch|rethrow|pure_virtual|guard_.*|atexit|throw_bad_array_new_length)'
  '__gxx_personality_v0' '_Unwind_Resume' '__dso_handle' '_GLOBAL_OFFSET_TABLE_'
  '_ZTV.*__cxxabiv1.*' '_ZTVN10__cxxabiv1.*' '__cpu_model' '__cpu_indicator_init'
  # Containers and strings of the C++ library.
  '_ZNK?St7__cxx1112basic_string.*' '_ZNK?St8__detail.*' '_ZSt(18|20|28|29).*_Rb_tree_.*'
  '_ZNSt15__exception_ptr.*' '_ZNSt8bad_alloc.*' '_ZTISt.*' '_ZTVSt.*'
  '_ZSt11_Hash_bytesPKvmm' '_ZSt15_Hash_bytes.*' '_ZSt8to_chars.*'
  # CRC32C of ISA-L.
  'crc32_iscsi'
)
pattern="^($(IFS='|'; echo "${allowed[*]}"))$"

undefined="$(nm --undefined-only --format=just-symbols "${archives[@]}" | grep -v ':$' |
  grep -v '^$' | sort -u)"
defined="$(nm --defined-only --extern-only --format=just-symbols "${archives[@]}" |
  grep -v ':$' | grep -v '^$' | sort -u)"

foreign="$(comm -23 <(echo "$undefined") <(echo "$defined") | grep -Ev "$pattern" || true)"
if [[ -n "$foreign" ]]; then
  echo "The protocol core refers to symbols outside the list in scripts/check-purity.sh:"
  nm --undefined-only -A "${archives[@]}" | grep -wF -f <(echo "$foreign") | c++filt |
    sed "s|^$build/lib/||" | sort -u
  exit 1
fi
echo "purity: $(echo "$undefined" | wc -l) undefined symbols in base, wire and proto, all allowed"
