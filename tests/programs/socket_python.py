"""Programs in Python for socket_programs.py: each construction that hands sockets on."""

from harness import check, free_port
from socket_setting import ASYNC_CLIENT

FORK_SERVER = """
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536): self.request.sendall(data)
class Server(socketserver.ForkingMixIn, socketserver.TCPServer):
    allow_reuse_address = True; request_queue_size = 64
Server((sys.argv[1], int(sys.argv[2])), Echo).serve_forever()
"""

CHILD_SERVER = """
import socket, subprocess, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[2]))); s.listen(64)
while True:
    c, _ = s.accept()
    subprocess.Popen(['/bin/cat'], stdin=c, stdout=c); c.close()
"""

PASSING_SERVER = """
import os, socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[2]))); s.listen(64)
mine, other = socket.socketpair()
if os.fork() == 0:
    s.close(); mine.close()
    while True:
        _, fds, _, _ = socket.recv_fds(other, 10, 1)
        if os.fork() == 0:
            with socket.socket(fileno=fds[0]) as c:
                while data := c.recv(65536): c.sendall(data)
            os._exit(0)
        os.close(fds[0])
while True:
    c, _ = s.accept()
    socket.send_fds(mine, [b'x'], [c.fileno()]); c.close()
"""

MIDWAY_SERVER = """
import os, socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[2]))); s.listen(64)
while True:
    c, _ = s.accept()
    data = c.recv(1000); c.sendall(data)   # some octets first, then a child goes on
    if os.fork() == 0:
        s.close()
        while data := c.recv(65536): c.sendall(data)
        os._exit(0)
    c.close()
"""

THREADS_CLIENT = """
import socket, sys, threading
LANES, SIZE = 4, 400_000   # an octet tells by itself which thread sent it
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
lanes = [bytes(k % 63 * LANES + i for k in range(SIZE)) for i in range(LANES)]
def send(i):
    at = 0
    while at < SIZE:
        step = 1 + (at * 7 + i * 131) % 9000
        s.sendall(lanes[i][at:at + step]); at += step
threads = [threading.Thread(target=send, args=(i,)) for i in range(LANES)]
for one in threads: one.start()
got = bytearray()
while len(got) < LANES * SIZE:
    part = s.recv(65536); assert part, len(got)
    got += part
for one in threads: one.join()
for i in range(LANES):
    others = bytes(v for v in range(256) if v % LANES != i)
    assert bytes(got).translate(None, others) == lanes[i], i
print('all in order')
"""


def threads(s):
    """Four threads send on one socket while a fifth receives; the other end is /bin/cat, which has
    inherited the connection. Nothing is lost or doubled, and each thread's octets stay in order."""
    port = free_port()
    server = s.serve(["/usr/bin/python3", "-c", CHILD_SERVER, s.host, port]).listening(port)
    out = s.must(["/usr/bin/python3", "-c", THREADS_CLIENT, s.host, port])
    s.check_path(out)
    check("all in order" in out, out)
    server.end()


def python_case(server_text, clients):
    def case(s):
        port = free_port()
        server = s.serve(["/usr/bin/python3", "-c", server_text, s.host, port]).listening(port)
        out = s.must(["/usr/bin/python3", "-c", ASYNC_CLIENT, s.host, port, clients])
        s.check_path(out)
        check("all equal" in out, out)
        server.end()
    return case
