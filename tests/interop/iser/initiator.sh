#!/bin/sh
# The kernel's iSER initiator on siw, in the guest: initiator.sh ADDRESS PORT
#
# Logs in, writes and reads the disk past the page cache, has the target killed (see target.sh),
# and goes on in the same session.
set -eu

fail() {
  echo "initiator: $*"
  dmesg | tail -20
  cat /tmp/iscsid.log
  exit 1
}

mkdir -p /etc/iscsi/nodes /etc/iscsi/send_targets /etc/iscsi/ifaces /run/lock/iscsi /var/lib/iscsi
echo 'InitiatorName=iqn.2026-11.test:guest' >/etc/iscsi/initiatorname.iscsi
cat >/etc/iscsi/iscsid.conf <<END
node.startup = manual
node.session.timeo.replacement_timeout = 60
node.conn[0].timeo.noop_out_interval = 1
node.conn[0].timeo.noop_out_timeout = 2
node.session.iscsi.InitialR2T = No
node.session.iscsi.ImmediateData = Yes
END
# In a session of its own, since it ends its whole process group with itself.
setsid iscsid --foreground --config=/etc/iscsi/iscsid.conf >/tmp/iscsid.log 2>&1 &
trap 'killall iscsid' EXIT
until grep -q ISCSIADM_ABSTRACT_NAMESPACE /proc/net/unix; do usleep 20000; done

portal=$1:$2
node() { iscsiadm --mode node --targetname iqn.2026-11.test:disk --portal "$portal" "$@"; }
node --interface iser --op new
node --interface iser --login

disk=
tries=0
until [ -n "$disk" ]; do
  for found in /sys/block/sd*; do [ -e "$found" ] && disk=/dev/${found##*/}; done
  tries=$((tries + 1))
  [ $tries -lt 200 ] || fail "no disk"
  usleep 50000
done
echo "initiator: $disk"

there_and_back() {  # there_and_back START MIBS: both past the page cache
  dd if=/dev/urandom of=/tmp/written bs=1M count="$2" 2>/dev/null
  dd if=/tmp/written of="$disk" bs=128k seek=$(($1 * 8)) oflag=direct 2>/dev/null || fail "write"
  dd if="$disk" of=/tmp/read bs=128k skip=$(($1 * 8)) count=$(($2 * 8)) iflag=direct 2>/dev/null ||
    fail "read"
  cmp /tmp/written /tmp/read || fail "what was read is not what was written"
}

there_and_back 0 8
echo "initiator: 8 MiB there and back"
last=$(($(blockdev --getsz "$disk") - 1))
printf again | dd of="$disk" bs=512 seek=$last conv=sync oflag=direct 2>/dev/null || fail "last block"
there_and_back 8 4
echo "initiator: 4 MiB there and back after the target was killed"
node --logout
echo "initiator: logged out"
