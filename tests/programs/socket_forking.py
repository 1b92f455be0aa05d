#!/usr/bin/env python3
"""`weft run --sockets`: servers that fork, run plain and under Weft."""

import sys

from harness import check, main
from socket_granted import both

# A server that forks for each connection. Its client is the parent, of whose end the child has a
# copy, too.
FORKING = """
import os, signal, socket, sys
mode = sys.argv[1]
listener = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(listener.getsockname()); a, _ = listener.accept()
def serve(a):
    while part := a.recv(8): a.sendall(part)
    os._exit(0)
def child(run):
    pid = os.fork()
    if pid == 0: c.close(); listener.close(); run(); os._exit(0)
    return pid
def forks_again():
    if os.fork() == 0: serve(a)
    a.close(); os.wait()
def copies():
    b = a.dup(); a.close(); serve(b)
def execs():
    if os.fork() == 0: os.set_inheritable(a.fileno(), True); os.execv('/bin/sleep', ['sleep', '0.3'])
    serve(a)
def fails_to_exec():
    try: os.execv('/no/such/program', ['x'])
    except OSError: serve(a)
if mode == 'killed': one = child(signal.pause); os.kill(one, signal.SIGKILL); os.waitpid(one, 0)
run = {'again': forks_again, 'copied': copies, 'exec': execs, 'no exec': fails_to_exec}.get(mode, lambda: serve(a))
pid = child(run)
if mode != 'kept': a.close()
for i in range(3000):
    c.sendall(b'%08d' % i)
    if i == 50: c.sendall(b'-' * 8); assert c.recv(8, socket.MSG_WAITALL) == b'%08d' % i; assert c.recv(8, socket.MSG_WAITALL) == b'-' * 8; continue
    assert c.recv(8, socket.MSG_WAITALL) == b'%08d' % i, i
c.shutdown(socket.SHUT_WR); os.waitpid(pid, 0); a.close(); assert c.recv(1) == b''
print('all answered', flush=True)
"""


def forking_server(network):
    """A connection has a ring once the parent has closed it, and never while others may have it."""
    rings = {"closed": 2, "again": 2, "kept": 0, "copied": 0, "killed": 0, "exec": 0, "no exec": 0}
    for mode, wanted in rings.items():
        out = both(network, FORKING, mode, wanted="all answered")
        check(out.count(": ring: ") == wanted, f"{mode}: {out}")
        check(wanted or mode == "no exec" or "copied, inherited by a process" in out, f"{mode}: {out}")


if __name__ == "__main__":
    sys.exit(main({"forking_server": forking_server}))
