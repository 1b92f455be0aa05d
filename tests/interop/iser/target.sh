#!/bin/bash
# An iSER target with one disk, until it is ended: TGT=FOLDER target.sh PORT
#
# FOLDER has tgtd and tgtadm, with their libraries.
# When the initiator has written "again" to the last block, tgtd is killed with SIGKILL and started
# anew with the same disk: a session has to outlive that.
set -euo pipefail

export PATH=$TGT:$PATH LD_LIBRARY_PATH=$TGT${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
folder=$(mktemp -d)
trap 'kill -9 "$daemon" 2>/dev/null || true; rm -rf "$folder"' EXIT
trap 'exit 0' TERM INT
blocks=32768  # of 512 octets
truncate -s $((blocks * 512)) "$folder/disk"

start() {
  # Its control socket has a name by number, beside those of others.
  tgtd --foreground --control-port $$ --iser "port=$1,pool_sz_mb=64" &
  daemon=$!
  until tgtadm --control-port $$ --lld iser --op show --mode sys >/dev/null 2>&1; do
    kill -0 "$daemon"
    sleep 0.05
  done
  tell() { tgtadm --control-port $$ --lld iser --mode "$@"; }
  tell target --op new --tid 1 --targetname iqn.2026-11.test:disk
  tell logicalunit --op new --tid 1 --lun 1 --backing-store "$folder/disk"
  tell target --op bind --tid 1 --initiator-address ALL
  tell target --op bind --tid 1 --initiator-name iqn.2026-11.test:guest
}

last_block() { tail -c 512 "$folder/disk" | tr -d '\0'; }

start "$1"
until [[ "$(last_block)" == again ]]; do
  kill -0 "$daemon"
  sleep 0.1
done
kill -9 "$daemon"
wait "$daemon" || true
echo "target: killed, and started again"
start "$1"
wait "$daemon"
