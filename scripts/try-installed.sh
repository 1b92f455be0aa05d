#!/usr/bin/env bash
# Tries installed packages of Weft, as the user who runs it, in a folder ~/try.
# scripts/check-debs.sh runs it in a bare Debian.
set -euo pipefail

step() { echo "  $*"; }
fails() { # fails STATUS COMMAND...: it ends with that status
  local wanted="$1" status=0
  shift
  "$@" >/dev/null 2>&1 || status=$?
  [[ $status -eq $wanted ]] || { echo "$* ended with $status, not $wanted" >&2; exit 1; }
}
await_port() { # await_port PORT: until somebody listens there
  for ((tenths = 0; tenths < 200; tenths++)); do
    [[ -z "$(ss --listening --tcp --numeric --no-header "sport = :$1")" ]] || return 0
    sleep 0.1
  done
  echo "nobody listens on port $1" >&2
  exit 1
}

examples=/usr/share/doc/weft-doc/examples
mkdir -p ~/try
cd ~/try
[[ $(id -u) -ne 0 ]]

step "weft --version, info, doctor, devices"
weft --version
weft info | grep -q weft0
weft info --all | grep -q loopback_congestion
weft doctor >/dev/null
weft devices | grep -q weft0
fails 2 weft pref

step "weft run -- rping"
timeout 60 weft run -- rping -s -a 127.0.0.1 -C 3 -v >server.log 2>&1 &
await_port 7174
timeout 60 weft run -- rping -c -a 127.0.0.1 -C 3 -v
wait $!

step "weft run --check, weft faults sweep"
cat >wrong.c <<'PROGRAM'
#include <infiniband/verbs.h>
int main(void) {
  struct ibv_device** list = ibv_get_device_list(0);
  struct ibv_context* context = list != 0 ? ibv_open_device(list[0]) : 0;
  struct ibv_pd* pd = context != 0 ? ibv_alloc_pd(context) : 0;
  if (pd == 0) return 3;
  struct ibv_cq* cq = ibv_create_cq(context, 4, 0, 0, 0);
  ibv_destroy_cq(cq);
  ibv_destroy_cq(cq);
  return 0;
}
PROGRAM
gcc -g -o wrong wrong.c -libverbs
weft run --check -- ./wrong 2>findings
grep -q "^weft check: E02 ibv_destroy_cq" findings
grep -q "called at main (wrong.c:9)" findings
fails 9 weft run --check --check-exit 9 -- ./wrong
weft check explain E02 | grep -q "destroyed object"
weft faults sweep -- ./wrong >swept
grep -q "ibv_alloc_pd: ENOMEM *main (wrong.c:5) *reported (exit 3)" swept

step "weft ping and perf"
timeout 60 weft ping --self --count 2 --quiet >/dev/null
timeout 60 weft perf --self --verify-only --quiet >/dev/null

step "examples, built by the command in their first lines"
for source in pingpong.cc kvstore.cc verbs_pingpong.c fetch.c; do
  cp "$examples/$source" .
  build="$(sed -n 's,^[/ *]*Build:  *,,p' "$source")"
  [[ -n "$build" ]] || { echo "$source does not say how to build it" >&2; exit 1; }
  bash -ec "$build"
done
pair() { # pair PORT RUNNER -- PROGRAM: server and client
  local port="$1"
  shift
  timeout 60 "$@" server "$port" &
  await_port "$port"
  timeout 60 "$@" client 127.0.0.1 "$port" 100
  wait $!
}
pair 7480 ./pingpong
pair 7481 weft run -- ./verbs_pingpong
pair 7484 weft run -- /usr/bin/python3 "$examples/pingpong.py"
timeout 60 ./kvstore serve 7482 &
await_port 7482
./kvstore put 127.0.0.1 7482 color green
[[ "$(./kvstore get 127.0.0.1 7482 color)" == green ]]
[[ "$(./kvstore add 127.0.0.1 7482 visits 2)" == 2 ]]
kill $!
timeout 60 ./fetch serve /usr/bin/weft 7483 &
await_port 7483
./fetch get 127.0.0.1 7483 copy
cmp /usr/bin/weft copy
kill $!
wait

step "weft serve, get, put, ls, cat, sync"
mkdir -p files/sub
head -c 3000000 /usr/lib/*/libc.a >files/large
echo "a small one" >files/sub/small
weft serve --quiet --writable --port 7485 files 2>/dev/null &
await_port 7485
url=weft://127.0.0.1:7485
[[ "$(weft cat "$url/sub/small")" == "a small one" ]]
weft ls "$url" | grep -q large
weft get --quiet -r "$url/" got
diff -r files got
weft put --quiet /etc/os-release "$url/put"
cmp /etc/os-release files/put
weft sync --quiet "$url/" got
cmp files/put got/put
fails 2 weft get nowhere
kill $!
wait $! || true

step "the systemd unit of weft serve"
unit="$(cat /lib/systemd/system/weft-serve.service)"
grep -q '^#SERVE_FOLDERS=' /etc/default/weft-serve
mkdir credentials
(umask 077 && head -c 24 /dev/urandom | base64 >credentials/token)
CREDENTIALS_DIRECTORY=~/try/credentials SERVE_OPTIONS="--port 7486" SERVE_FOLDERS=~/try/files \
  bash -c "exec $(sed -n 's/^ExecStart=//p' <<<"$unit")" 2>/dev/null &
await_port 7486
weft cat --token-file credentials/token weft://127.0.0.1:7486/sub/small | grep -q "a small one"
kill $!
wait $! || true

step "exs-perf, and a program that uses libexs"
timeout 60 exs-perf --self --mode tcp --size 4096 --seconds 0.1 --rounds 1 | grep -q '^tcp'
timeout 60 weft run -- exs-perf --self --mode stream --size 4096 --seconds 0.1 --rounds 1 |
  grep -q '^stream'
cat >sockets.c <<'SOURCE'
#include <stdio.h>
#include <sys/exs.h>
int main(void) { return exs_init(EXS_VERSION) == 0 ? 0 : (perror("exs_init"), 1); }
SOURCE
# shellcheck disable=SC2046  # words
gcc sockets.c -o sockets $(pkg-config --cflags --libs exs)
./sockets

step "find_package(Weft)"
cat >CMakeLists.txt <<'LISTS'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(Weft REQUIRED)
add_executable(consumer pingpong.cc)
target_link_libraries(consumer PRIVATE Weft::weft)
LISTS
cmake -S . -B consumer-build >/dev/null
cmake --build consumer-build >/dev/null

# walk FILE HEADING: the shell commands of that section, one after another, as a reader copies them.
# After a command in the background it goes on when one more port is listened on.
walk() {
  {
    cat <<'FUNCTIONS'
ports() { ss --listening --tcp --numeric --no-header | wc -l; }
await_one_more() {
  for ((tenths = 0; tenths < 200; tenths++)); do
    [[ $(ports) -le $before ]] || return 0
    sleep 0.1
  done
  echo "nobody listens" >&2
  exit 1
}
FUNCTIONS
    # shellcheck disable=SC2016  # expanded when it runs
    awk -v heading="$2" '
      /^##/ { here = index($0, heading) != 0 }
      /^```/ { shell = here && $0 == "```sh"; next }
      shell' "$1" | sed 's/^\(.*\) &$/before=$(ports); \1 \& await_one_more/'
    # shellcheck disable=SC2016
    echo 'for job in $(jobs -p); do wait "$job"; done'
  } >walk.sh
  grep -q weft walk.sh || { echo "$1 has no commands below '$2'" >&2; exit 1; }
  timeout 100 bash -e walk.sh
}
documents=/usr/share/doc/weft-doc
step "getting-started.md, step by step"
walk "$documents/docs/getting-started.md" "2. Run a program"
walk "$documents/docs/getting-started.md" "3. Your own program, in C"
walk "$documents/docs/getting-started.md" "4. Your own program, in C++"
if unshare --user --map-root-user --net true 2>/dev/null; then
  walk "$documents/docs/getting-started.md" "5. Two hosts on one machine"
  walk "$documents/docs/ci.md" "Two hosts on one runner"
else
  echo "    two-hosts.sh is left out: no user namespaces here"
fi
step "ci.md, step by step"
walk "$documents/docs/ci.md" pyverbs
# perftest gives up now and then on a busy machine, as the page says.
for ((again = 0; again < 3; again++)); do
  if walk "$documents/docs/ci.md" perftest; then break; fi
done
[[ $again -lt 3 ]]

step "the configuration file is read"
grep -q '^#crc = on' /etc/weft.conf
echo "crc = off" >my.conf
WEFT_CONFIG=my.conf weft info | grep -q 'crc = off'

step "manual pages"
mapfile -t commands < <(weft --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p')
[[ ${#commands[@]} -ge 15 ]]
for page in "${commands[@]/#/1 weft-}" "1 weft" "1 exs-perf" "5 weft.conf" "7 weft" "7 exs" \
  "3 libweft" "3 exs_recv"; do
  # shellcheck disable=SC2086  # section and name
  man $page | grep -Eqi 'weft|exs' || { echo "no manual page: $page" >&2; exit 1; }
done

step "completion"
bash -c '
  source /usr/share/bash-completion/completions/weft
  COMP_WORDS=(weft perf --transp) COMP_CWORD=2
  _weft
  [[ "${COMPREPLY[*]}" == --transport ]]
  COMP_WORDS=(weft do) COMP_CWORD=1
  _weft
  [[ "${COMPREPLY[*]}" == doctor ]]'
