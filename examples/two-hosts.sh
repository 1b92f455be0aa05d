#!/usr/bin/env bash
# Two hosts on one machine: two network namespaces joined by a cable (a veth pair), with a server in
# one and a client in the other. Both run over Weft, each in a network of its own.
#
#   two-hosts.sh 'SERVER COMMAND' 'CLIENT COMMAND'
#
# Try:    ./two-hosts.sh 'weft run -- rping -s -C 5 -v' 'weft run -- rping -c -a 10.77.0.1 -C 5 -v'
#
# The server's address is 10.77.0.1 (fd77::1), the client's 10.77.0.2 (fd77::2). The client starts
# once the server listens on a TCP port. The exit status is the client's. When it has ended, the
# server has 5 seconds to end by itself; then everything is removed. MTU=9000 in the environment
# sets the packet size of the cable.
#
# An ordinary user may run this where the system allows user namespaces; root always may.
set -euo pipefail

if [[ $# -ne 2 ]]; then
  sed -n '2,15s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi

# In a user namespace an ordinary user is root over networks of his own.
if [[ $EUID -ne 0 && -z "${TWO_HOSTS_INSIDE:-}" ]]; then
  exec env TWO_HOSTS_INSIDE=1 unshare --user --map-root-user --net -- "$0" "$@"
fi

hosts=()
server=
# Invoked by the trap: without processes a namespace goes, and its end of the cable with it.
# shellcheck disable=SC2317
cleanup() {
  [[ -z "$server" ]] || kill -- "-$server" 2>/dev/null || true
  kill "${hosts[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
}
trap cleanup EXIT

# Two hosts: each is a process that sleeps in a network namespace.
for side in server client; do
  coproc SLEEPER { exec unshare --net -- sh -c 'echo ready; exec sleep infinity'; }
  hosts+=("$SLEEPER_PID")
  read -r _ <&"${SLEEPER[0]}" || { echo "two-hosts.sh: no network namespace for the $side" >&2; exit 1; }
done 2>/dev/null

on() { # on server|client COMMAND...
  local pid=${hosts[0]}
  [[ $1 == server ]] || pid=${hosts[1]}
  shift
  nsenter --net="/proc/$pid/ns/net" -- "$@"
}

on server ip link add cable mtu "${MTU:-1500}" type veth peer name cable mtu "${MTU:-1500}" \
  netns "${hosts[1]}"
number=1
for side in server client; do
  on "$side" ip link set lo up
  on "$side" ip address add "10.77.0.$number/24" dev cable
  on "$side" ip address add "fd77::$number/64" dev cable nodad
  on "$side" ip link set cable up
  number=2
done

# A session of its own: all that the command starts is ended with it.
setsid nsenter --net="/proc/${hosts[0]}/ns/net" -- bash -c "$1" &
server=$!
for ((tenths = 0; tenths < 200; tenths++)); do
  [[ -z "$(on server ss --listening --tcp --no-header)" ]] || break
  kill -0 "$server" 2>/dev/null || { echo "two-hosts.sh: the server ended at once" >&2; exit 1; }
  sleep 0.1
done

status=0
on client bash -c "$2" || status=$?
for ((tenths = 0; tenths < 50; tenths++)); do
  kill -0 "$server" 2>/dev/null || break
  sleep 0.1
done
exit "$status"
