#!/usr/bin/env bash
# Installs the packages of scripts/build-debs.sh into a bare Debian 12 and tries them there as an
# ordinary user: programs, examples, libraries, manual pages, completion. Then it removes and purges
# them, and compares the files with those before.
#
#   scripts/check-debs.sh [DIR]
#
# DIR holds the packages (default: build/debs). Needs root, mmdebstrap and a Debian mirror. Exit
# status 77: it cannot be done here. The bare Debian is made in a folder of its own and deleted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

debs="$(realpath -m "${1:-build/debs}")"
skip() {
  echo "check-debs.sh: skipped: $1"
  exit 77
}
[[ $EUID -eq 0 ]] || skip "not root"
command -v mmdebstrap >/dev/null || skip "mmdebstrap is not installed (scripts/install-deps.sh debs)"
unshare --mount --net --pid --fork true 2>/dev/null || skip "no namespaces here"
compgen -G "$debs/weft_*.deb" >/dev/null ||
  { echo "check-debs.sh: no packages in $debs; run scripts/build-debs.sh first" >&2; exit 1; }

root="$(mktemp -d)"
chmod 755 "$root"
trap 'rm -rf --one-file-system "$root"' EXIT
echo "Making a bare Debian 12 in $root"
# What the packages depend on, and what the trial needs, comes first, so that the packages make the
# only difference later. The dependencies are those that the packages declare, and no more.
mapfile -t depends < <(for deb in "$debs"/*.deb; do
  [[ "$deb" == *-dbgsym_* ]] || dpkg-deb --field "$deb" Depends | tr ',' '\n'
done | sed 's/([^)]*)//; s/|.*//; s/ //g; /^$/d; /^libweft\|^weft\|^libexs/d' | sort -u)
before=("${depends[@]}" rdmacm-utils ibverbs-utils perftest g++ pkgconf cmake make libibverbs-dev librdmacm-dev
  iproute2 man-db bash-completion procps python3-pyverbs)
# --variant=minbase leaves manual pages out only where dpkg is told to; the trial reads them.
mmdebstrap --quiet --variant=minbase --include="$(IFS=,; echo "${before[*]}")" bookworm "$root" \
  >"$debs/mmdebstrap.log" 2>&1 ||
  { tail -5 "$debs/mmdebstrap.log"; skip "no bare Debian, see $debs/mmdebstrap.log"; }

mkdir "$root/debs"
cp "$debs"/*.deb "$root/debs/"
rm -f "$root"/debs/*-dbgsym_*.deb
cp scripts/try-installed.sh "$root/debs/"

# In namespaces of its own: its processes end with it, and its ports are nobody else's. The root is
# exchanged rather than changed by chroot, which would forbid user namespaces to ordinary users.
inside() {
  # shellcheck disable=SC2016  # expanded in there
  unshare --mount --net --pid --fork -- bash -c '
    mount --bind "$0" "$0" && cd "$0" && mount -t proc proc proc && mount -t tmpfs tmpfs tmp &&
    ip link set lo up && pivot_root . . && umount --lazy . && cd / &&
    exec env PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"' "$root" "$@"
}

# Names and contents of all files, but for the logs and lists that any installation changes.
snapshot() {
  (cd "$root" && find . -xdev \( -path ./proc -o -path ./tmp -o -path ./debs -o -path ./var/log \
    -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache \) -prune -o -print | sort)
}

inside useradd --create-home tester
snapshot >"$debs/files-before"
echo "Installing"
inside sh -c 'dpkg --install /debs/*.deb' >"$debs/install.log" 2>&1 ||
  { cat "$debs/install.log"; exit 1; }
inside setpriv --reuid tester --regid tester --clear-groups --reset-env \
  bash /debs/try-installed.sh
echo "Removing"
mapfile -t names < <(for deb in "$root"/debs/*.deb; do dpkg-deb --field "$deb" Package; done)
inside dpkg --remove "${names[@]}" >"$debs/remove.log" 2>&1 || { cat "$debs/remove.log"; exit 1; }
[[ -f "$root/etc/weft.conf" && ! -e "$root/usr/bin/weft" ]] ||
  { echo "check-debs.sh: /etc/weft.conf has to outlive removal, and the programs must not" >&2; exit 1; }
inside dpkg --purge "${names[@]}" >"$debs/remove.log" 2>&1 || { cat "$debs/remove.log"; exit 1; }
inside rm -rf /home/tester/try
snapshot >"$debs/files-after"
if ! diff "$debs/files-before" "$debs/files-after"; then
  echo "check-debs.sh: the removed packages left files behind, see above" >&2
  exit 1
fi
echo "debs: installed, tried as an ordinary user, removed without a trace"
