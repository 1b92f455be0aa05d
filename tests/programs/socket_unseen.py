#!/usr/bin/env python3
"""Programs under `weft run --sockets` that use their sockets by calls which no library sees."""

import os
import sys

from harness import Skip, check, free_port, main, need
from socket_setting import LIMIT_S, everywhere

NODE_SERVER = """
const fs = require('fs'), http = require('http');
const [file, host, port] = process.argv.slice(2);
http.createServer((request, response) => fs.readFile(file, (error, data) => {
  let body = ''; request.on('data', part => body += part);
  request.on('end', () => response.end(request.method + ' ' + body + ' ' + data));
})).listen(port, host);
"""
NODE_CLIENT = """
const http = require('http');
const [host, port] = process.argv.slice(2), agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
let left = 320, failed = 0;
function ask(i) {
  const body = 'x'.repeat(i * 37 % 5000);
  const request = http.request({ host, port, agent, method: 'POST' }, response => {
    let got = ''; response.on('data', part => got += part);
    response.on('end', () => { if (got !== 'POST ' + body + ' content') ++failed; done(); });
  });
  request.on('error', () => { ++failed; done(); });
  request.end(body);
}
function done() { if (--left === 0) { console.log('failed', failed); agent.destroy(); } }
for (let i = 0; i < 320; ++i) ask(i);
"""


def node(s):
    """Node closes sockets by calls of its own, and reads files beside them: 320 requests on
    connections that stay."""
    need("node")
    port = free_port()
    server = s.serve(["node", s.write("server.js", NODE_SERVER), s.write("file", "content"), s.host, port]).listening(port)
    out = s.must(["node", s.write("client.js", NODE_CLIENT), s.host, port])
    s.check_path(out)
    check("failed 0" in out, out)
    server.end()


def io_uring(s):
    """io_uring at one end or both: the other end's ring is of no use, and nothing is lost."""
    program = os.path.join(os.environ["WEFT_TEST_BIN_DIR"], "socket_uring")
    for server_way, client_way in ("uring", "plain"), ("plain", "uring"), ("uring", "uring"):
        port = free_port()
        server = s.serve([program, "serve", s.host, port, server_way]).listening(port)
        client = s.call([program, "call", s.host, port, client_way])
        if "no io_uring" in client.output():
            raise Skip("no io_uring here")
        out = client.expect(0, LIMIT_S)
        s.check_path(out)
        check("all equal" in out, f"{server_way}, {client_way}: {out}")
        server.expect(0, LIMIT_S)


STATIC_SERVER = """
import os, socket, subprocess, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
c, _ = listener.accept()
for _ in range(50): assert c.recv(4) == b'ping'; c.sendall(b'pong')
subprocess.run([sys.argv[3]], stdin=c, stdout=c)
"""
STATIC_CLIENT = """
import socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for _ in range(50): c.sendall(b'ping'); assert c.recv(4) == b'pong'
c.sendall(b'to the script\\n'); c.shutdown(socket.SHUT_WR)
print(c.recv(100, socket.MSG_WAITALL))
"""


def static_program(s):
    """A busy connection is inherited by a program that no library can be preloaded into."""
    program = os.path.join(os.environ["WEFT_TEST_BIN_DIR"], "socket_static")
    port = free_port()
    server = s.serve(["/usr/bin/python3", "-c", STATIC_SERVER, s.host, port, program]).listening(port)
    out = s.must(["/usr/bin/python3", "-c", STATIC_CLIENT, s.host, port])
    check("b'script: to the script" in out, out)
    server.expect(0, LIMIT_S)


CASES = {case.__name__: everywhere(case) for case in (node, io_uring, static_program)}

if __name__ == "__main__":
    sys.exit(main(CASES))
