#!/bin/bash
# Builds the peer of the interop tests: Debian's own kernel, Linux siw, and the RDMA programs of
# Debian in one initramfs. Everything comes from Debian packages; of these only tools (QEMU, a
# compiler, cpio...) are installed, the rest is unpacked in a temporary directory.
#
#   build.sh          prints the directory with kernel, initrd and versions.txt
#   build.sh --force  builds anew
#
# The result is kept in $WEFT_CACHE (default ~/.cache/weft/interop) under a name made of the hashes
# of these scripts and of the package versions, so a second run only looks it up.
# Exit status: 0 built or found; 77 cannot be had on this machine, with the reason on stderr;
# 1 should have worked and did not.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${WEFT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft/interop}
kernel_series=6.1

say() { printf 'interop vm: %s\n' "$*" >&2; }
skip() { say "skipped: $*"; exit 77; }
die() { say "failed: $*"; exit 1; }

# Needed on the machine itself: package and the file that proves it is there.
host_tools=(
  qemu-system-x86:/usr/bin/qemu-system-x86_64 gcc-12:/usr/bin/gcc-12 make:/usr/bin/make
  binutils:/usr/bin/objdump libc6-dev:/usr/include/stdio.h libelf1:/usr/lib/x86_64-linux-gnu/libelf.so.1
  libssl3:/usr/lib/x86_64-linux-gnu/libcrypto.so.3 cpio:/usr/bin/cpio kmod:/sbin/depmod
  xz-utils:/usr/bin/xz iproute2:/sbin/ip)

# What the guest gets its programs and libraries from; unpacked, never installed.
guest_packages=(
  busybox-static rdmacm-utils ibverbs-utils ibverbs-providers perftest iproute2 tcpdump
  libc6 libgcc-s1 libibverbs1 librdmacm1 libnl-3-200 libnl-route-3-200 libibumad3 libpci3 libudev1 zlib1g
  libbpf1 libelf1 libmnl0 libcap2 libbsd0 libmd0 libselinux1 libtirpc3 libdb5.3
  libgssapi-krb5-2 libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1 libxtables12
  libpcap0.8 libdbus-1-3 libsystemd0 libgcrypt20 libgpg-error0 liblz4-1 liblzma5 libzstd1 libssl3
  open-iscsi libopeniscsiusr libisns0 libkmod2 libmount1 libblkid1 libpcre2-8-0)

# Run on this host, but not installed: that would start a daemon.
host_packages=(tgt libaio1)

guest_programs=(
  rping ucmatose rdma_server rdma_client rdma_xserver cmtime rstream riostream
  rcopy ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_send_bw ib_send_lat ib_atomic_bw
  ibv_devices ibv_devinfo tcpdump rdma ip tc ss iscsid iscsiadm)

guest_modules=(
  virtio_pci virtio_net virtio_console 9pnet_virtio 9p crc32c_generic ib_core ib_uverbs iw_cm rdma_cm
  rdma_ucm siw crc32_generic rdma_rxe sch_netem sd_mod ib_iser)

version_of() {  # the version apt would fetch, or nothing
  apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: //p' | grep -v '(none)' || true
}

newest_kernel() {  # 6.1.0-N-amd64 with the largest N
  apt-cache pkgnames "linux-image-$kernel_series.0-" |
    sed -n 's/^linux-image-\([0-9.]*-[0-9]*-amd64\)$/\1/p' | sort -V | tail -1
}

install_tools() {
  local entry missing=()
  for entry in "${host_tools[@]}"; do
    [[ -e ${entry#*:} ]] || missing+=("${entry%%:*}")
  done
  ((${#missing[@]})) || return 0
  [[ $(id -u) == 0 ]] || skip "not root and these packages are missing: ${missing[*]}"
  say "installing ${missing[*]}"
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -q \
    --no-install-recommends "${missing[@]}" \
    >"$work/apt.log" 2>&1 || { tail -5 "$work/apt.log" >&2; skip "apt-get install failed"; }
}

fetch() {  # fetch DIRECTORY PACKAGE=VERSION...
  local dir=$1
  shift
  mkdir -p "$dir"
  # apt drops to a user that cannot write here; that is only worth a warning, so it is told not to.
  (cd "$dir" && apt-get download -q -o APT::Sandbox::User=root "$@") >"$work/apt.log" 2>&1 ||
    { tail -5 "$work/apt.log" >&2; skip "apt-get download failed"; }
}

# siw's policy is a set of constants. Each becomes a module parameter that may be changed at any
# time through /sys/module/siw/parameters and counts for the next connection. Nothing else changes.
parametrise_siw() {
  local dir=$1 name
  for name in zcopy_tx try_gso mpa_crc_required mpa_crc_strict siw_tcp_nagle peer_to_peer; do
    grep -q "^const bool $name\b" "$dir/siw_main.c" || die "siw source has no constant $name"
    sed -i "s/^const bool \($name\b.*;\)/bool \1\nmodule_param($name, bool, 0644);/" "$dir/siw_main.c"
    sed -i "s/^extern const bool $name;/extern bool $name;/" "$dir/siw.h"
  done
  grep -q '^u_char mpa_version = ' "$dir/siw_main.c" || die "siw source has no mpa_version"
  sed -i 's/^\(u_char mpa_version = .*;\)/\1\nmodule_param(mpa_version, byte, 0644);/' "$dir/siw_main.c"
  grep -q '^static __be16 rtr_type = ' "$dir/siw_cm.c" || die "siw source has no rtr_type"
  grep -q '^static const bool relaxed_ird_negotiation' "$dir/siw_cm.c" ||
    die "siw source has no relaxed_ird_negotiation"
  sed -i \
    -e 's/^static __be16 rtr_type = .*/static bool rtr_write = true, rtr_read = true;\nmodule_param(rtr_write, bool, 0644);\nmodule_param(rtr_read, bool, 0644);/' \
    -e 's/|= rtr_type;/|= (rtr_write ? MPA_V2_RDMA_WRITE_RTR : 0) | (rtr_read ? MPA_V2_RDMA_READ_RTR : 0);/' \
    -e 's/^static const bool \(relaxed_ird_negotiation.*;\)/static bool \1\nmodule_param(relaxed_ird_negotiation, bool, 0644);/' \
    "$dir/siw_cm.c"
}

build_siw() {  # leaves $work/siw/siw.ko
  fetch "$work/source" "linux-source-$kernel_series=$source_version" &&
    dpkg-deb --fsys-tarfile "$work"/source/*.deb |
    tar -xO "./usr/src/linux-source-$kernel_series.tar.xz" |
      tar -xJ -C "$work" --strip-components=4 "linux-source-$kernel_series/drivers/infiniband/sw/siw"
  [[ -f $work/siw/siw_main.c ]] || die "linux-source-$kernel_series has no siw"
  rm -rf "$work/source"
  parametrise_siw "$work/siw"

  fetch "$work/headers" "linux-headers-$kernel=$kernel_version" \
    "linux-headers-${kernel%-amd64}-common=$kernel_version" "linux-kbuild-$kernel_series=$source_version"
  local deb
  for deb in "$work"/headers/*.deb; do dpkg -x "$deb" "$work/hroot"; done
  # The headers name their companions by absolute path; they are here instead.
  local h=$work/hroot/usr/src/linux-headers-$kernel
  sed -i "s#/usr/src/#$work/hroot/usr/src/#g" "$h/Makefile" "$h/.kernelvariables" 2>/dev/null || true
  ln -sfn "$work/hroot/usr/lib/linux-kbuild-$kernel_series/scripts" "$h/scripts"
  ln -sfn "$work/hroot/usr/lib/linux-kbuild-$kernel_series/tools" "$h/tools"
  make -s -C "$h" M="$work/siw" CONFIG_RDMA_SIW=m modules >"$work/siw.log" 2>&1 ||
    { tail -20 "$work/siw.log" >&2; die "siw does not compile"; }
}

unpack_kernel() {  # vmlinuz and the directories our modules live in
  fetch "$work/image" "linux-image-$kernel=$kernel_version"
  local m=./lib/modules/$kernel
  mkdir -p "$work/kroot"
  dpkg-deb --fsys-tarfile "$work"/image/*.deb | tar -x -C "$work/kroot" --wildcards \
    "./boot/*" "$m/modules.builtin*" "$m/modules.order" "$m/kernel/drivers/infiniband/*" \
    "$m/kernel/drivers/virtio/*" "$m/kernel/drivers/char/*" "$m/kernel/drivers/net/*.ko" \
    "$m/kernel/net/core/*" "$m/kernel/net/9p/*" "$m/kernel/net/ipv4/udp_tunnel.ko" \
    "$m/kernel/net/ipv6/ip6_udp_tunnel.ko" "$m/kernel/net/sched/*" "$m/kernel/fs/9p/*" \
    "$m/kernel/drivers/scsi/*" "$m/kernel/block/*" "$m/kernel/fs/netfs/*" "$m/kernel/fs/fscache/*" "$m/kernel/fs/configfs/*" "$m/kernel/crypto/*" "$m/kernel/lib/*"
  mkdir -p "$work/kroot/lib/modules/$kernel/extra"
  objcopy --strip-debug "$work/siw/siw.ko"
  cp "$work/siw/siw.ko" "$work/kroot/lib/modules/$kernel/extra/"
  /sbin/depmod -b "$work/kroot" "$kernel"
}

# Writes the kernel itself, taken out of its self-extracting wrapper: an emulated processor takes
# ten seconds for that. The offsets are of the boot protocol's header; QEMU starts both forms.
unwrap_kernel() {
  local wrapped=$1 plain=$2 sectors start length
  sectors=$(od -An -t u1 -j $((0x1f1)) -N 1 "$wrapped")
  start=$(od -An -t u4 -j $((0x248)) -N 4 "$wrapped")
  length=$(od -An -t u4 -j $((0x24c)) -N 4 "$wrapped")
  # The payload ends with its length, which is no part of the stream.
  tail -c +$(((sectors + 1) * 512 + start + 1)) "$wrapped" | head -c $((length)) |
    xz -dc --single-stream 2>/dev/null >"$plain" || true
  [[ $(head -c 4 "$plain") == $'\x7fELF' ]] || cp "$wrapped" "$plain"
}

add_modules() {  # each module with what it needs, in loading order
  local name verb file rest
  # Only part of the kernel's modules is unpacked: a symbol that then has no owner shows up here.
  /sbin/depmod -e -E "$work/hroot/usr/src/linux-headers-$kernel/Module.symvers" \
    -b "$work/kroot" "$kernel" >"$work/depmod" 2>&1
  mkdir -p "$root/modules"
  : >"$root/modules/order"
  for name in "${guest_modules[@]}"; do
    /sbin/modprobe -d "$work/kroot" -S "$kernel" --show-depends "$name" >"$work/deps" 2>&1 ||
      { cat "$work/deps" >&2; die "module $name is not to be had"; }
    while read -r verb file rest; do
      [[ $verb == insmod ]] || continue
      if grep -F "${file##*/} needs" "$work/depmod" >&2; then
        die "$name needs a module that is not unpacked"
      fi
      cp "$file" "$root/modules/"
      grep -qx "${file##*/}" "$root/modules/order" || echo "${file##*/}" >>"$root/modules/order"
    done <"$work/deps"
  done
}

add_libraries() {  # what the given file needs, and what that needs
  local need found
  for need in $(objdump -p "$1" 2>/dev/null | sed -n 's/^  NEEDED  *//p'); do
    [[ -e $root/lib/x86_64-linux-gnu/$need || $need == ld-linux* ]] && continue
    found=$(find "$work/groot" -name "$need" -print -quit)
    [[ -n $found ]] || die "$need, needed by $1, is in none of the packages"
    cp -L "$found" "$root/lib/x86_64-linux-gnu/"
    add_libraries "$found"
  done
}

add_programs() {
  local wanted name found deb
  wanted=()
  for name in "${guest_packages[@]}"; do wanted+=("$name=$(version_of "$name")"); done
  fetch "$work/debs" "${wanted[@]}"
  for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/groot"; done

  mkdir -p "$root"/{bin,etc/libibverbs.d,lib/x86_64-linux-gnu/libibverbs,lib64}
  for name in "${guest_programs[@]}"; do
    # Files before links, which may name a file by its absolute path.
    found=$(find "$work/groot" -path "*bin/$name" \( -type f -o -type l \) -printf '%y %p\n' |
      sort | sed -n '1s/^. //p')
    [[ -n $found ]] || die "$name is in none of the packages"
    cp -L "$found" "$root/bin/"
    add_libraries "$found"
  done
  for name in siw rxe; do
    found=$(find "$work/groot" -name "lib$name-rdmav*.so" -print -quit)
    cp "$found" "$root/lib/x86_64-linux-gnu/libibverbs/"
    add_libraries "$found"
    cp "$work/groot/etc/libibverbs.d/$name.driver" "$root/etc/libibverbs.d/"
  done
  # glibc opens this one by name when a thread ends.
  cp -L "$(find "$work/groot" -name libgcc_s.so.1 -print -quit)" "$root/lib/x86_64-linux-gnu/"
  cp -L "$(find "$work/groot" -name 'ld-linux-x86-64.so.2' -print -quit)" "$root/lib64/"
  cp "$(find "$work/groot" -path '*bin/busybox' -print -quit)" "$root/bin/busybox"
}

add_target() {  # tgtd for this host
  local wanted=() name deb
  for name in "${host_packages[@]}"; do wanted+=("$name=$(version_of "$name")"); done
  fetch "$work/target" "${wanted[@]}"
  for deb in "$work"/target/*.deb; do dpkg -x "$deb" "$work/troot"; done
  mkdir "$work/out/tgt"
  cp -L "$work"/troot/usr/sbin/{tgtd,tgtadm} "$(find "$work/troot" -name libaio.so.1 -print -quit)" \
    "$work/out/tgt/"
}

build() {
  root=$work/root
  mkdir -p "$root"/{dev,proc,sys,tmp,run,var/run,host,root}
  ln -s ../lib "$root/var/lib" && mkdir -p "$root/usr" && ln -s ../lib "$root/usr/lib"
  say "siw of linux-source-$kernel_series $source_version for $kernel"
  build_siw
  unpack_kernel
  add_modules
  add_programs
  add_target
  install -m 755 "$here/init" "$root/init"
  install -m 755 "$here/agent" "$root/bin/agent"
  echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
  echo 'root:x:0:' >"$root/etc/group"
  echo '127.0.0.1 localhost' >"$root/etc/hosts"
  unwrap_kernel "$(find "$work/kroot/boot" -name 'vmlinuz-*' -print -quit)" "$work/out/kernel"
  # Not compressed: the guest's emulated processor would spend seconds on that.
  (cd "$root" && find . -print0 | cpio --null -o -H newc --quiet -R 0:0 ) >"$work/out/initrd"
  {
    echo "kernel $kernel $kernel_version"
    echo "siw $source_version"
    local name
    for name in libibverbs1 librdmacm1 rdmacm-utils perftest open-iscsi tgt; do echo "$name $(version_of "$name")"; done
  } >"$work/out/versions.txt"
}

[[ $(uname -m) == x86_64 ]] || skip "the guest is built for x86_64, this is $(uname -m)"
command -v apt-get >/dev/null || skip "no apt-get: this is not Debian"

mkdir -p "$cache" || skip "cannot write $cache"
exec 9>"$cache/lock"
flock -w 600 9 || die "another build has held $cache/lock for ten minutes"

scripts=$(cat "$here"/{build.sh,init,agent} | sha256sum | cut -c1-12)
kernel=$(newest_kernel)
if [[ $(id -u) == 0 && ( -z $kernel || -z $(version_of "linux-source-$kernel_series") ) ]]; then
  apt-get update -q >/dev/null 2>&1 || true
  kernel=$(newest_kernel)
fi
if [[ -z $kernel ]]; then
  # Without package lists an image made earlier by the same scripts will do.
  found=$(find "$cache" -maxdepth 1 -name "$scripts-*" -print -quit)
  [[ -n $found ]] && { echo "$found"; exit 0; }
  skip "apt knows no linux-image-$kernel_series.0-N-amd64 (Debian 12 has it)"
fi
kernel_version=$(version_of "linux-image-$kernel")
source_version=$(version_of "linux-source-$kernel_series")
[[ -n $source_version ]] || skip "apt knows no linux-source-$kernel_series"
versions=$({
  echo "$kernel $kernel_version $source_version"
  apt-cache policy "${guest_packages[@]}" "${host_packages[@]}" | grep -E '^[a-z]|Candidate'
} | sha256sum | cut -c1-12)
image=$cache/$scripts-$versions

work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
install_tools
if [[ ! -f $image/initrd || ${1:-} == --force ]]; then
  mkdir "$work/out"
  build
  rm -rf "$image"
  mv "$work/out" "$image"
  find "$cache" -maxdepth 1 -name '*-*' -type d -mtime +30 -exec rm -rf {} +
fi
touch "$image"
echo "$image"
