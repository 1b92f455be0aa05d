#!/usr/bin/env bash
# Shows two unmodified RDMA programs running over Weft on 127.0.0.1, server and client in two
# processes: rping (rdmacm-utils), and ib_write_bw (perftest) with connections by rdma_cm.
#
#   scripts/show-programs.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly weft=build/release/bin/weft
readonly limit_s=30
# perftest measures the CPU's frequency, and gives up where others keep the CPU busy meanwhile.
readonly unsure='Correlation coefficient r^2'

work="$(mktemp -d)"
server=
cleanup() {
  if [[ -n "$server" ]]; then kill "$server" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap cleanup EXIT

is_listening() { [[ -n "$(ss -Hltn "sport = :$1")" ]]; }

free_port() {
  local port
  while port=$((20000 + RANDOM % 10000)) && is_listening "$port"; do :; done
  echo "$port"
}

# both NAME SERVER_ARGS -- CLIENT_ARGS: runs both sides on a free port, which is appended as -p
# PORT. Output in $work/server and $work/client. The status is the client's, or else the server's.
both() {
  local name="$1" port status=0
  shift
  local server_args=() client_args=()
  while [[ "$1" != -- ]]; do
    server_args+=("$1")
    shift
  done
  shift
  client_args=("$@")
  port="$(free_port)"
  timeout "$limit_s" "$weft" run -- "$name" "${server_args[@]}" -p "$port" >"$work/server" 2>&1 &
  server=$!
  until is_listening "$port" || ! kill -0 "$server" 2>/dev/null; do sleep 0.05; done
  timeout "$limit_s" "$weft" run -- "$name" "${client_args[@]}" -p "$port" >"$work/client" 2>&1 ||
    status=$?
  wait "$server" || status=$((status == 0 ? $? : status))
  server=
  return "$status"
}

fail() {
  echo "show-programs.sh: $1 over Weft failed; its server and client said:" >&2
  tail -n 15 "$work/server" "$work/client" >&2
  exit 1
}

echo
echo "Unmodified programs over Weft:"
echo
echo "\$ weft run -- rping -c -a 127.0.0.1 -C 3 -S 32 -v -V"
both rping -s -a 127.0.0.1 -C 3 -S 32 -- -c -a 127.0.0.1 -C 3 -S 32 -v -V || fail rping
grep 'ping data' "$work/client" || fail rping

echo
echo "\$ weft run -- ib_write_bw -R -F -s 65536 -n 5000 127.0.0.1"
for attempt in 1 2 3; do
  if both ib_write_bw -R -F -s 65536 -n 5000 -- -R -F -s 65536 -n 5000 127.0.0.1; then
    grep -A1 '#bytes' "$work/client" || fail ib_write_bw
    exit 0
  fi
  grep -qsF "$unsure" "$work/server" "$work/client" || fail ib_write_bw
  echo "ib_write_bw could not measure the CPU's frequency (attempt $attempt)"
done
