"""Both ends of the data protocol (docs/data-protocol.md) over plain sockets, to break its rules.

MPA of revision 1, DDP and RDMAP are done by hand here, and only as far as the tests need them.
"""

import socket
import struct
import threading

from fake_peer import FakePeer, fpdu

SEND, WRITE, IMMEDIATE = 3, 0, 8
READ_REQUEST, SEND_INVALIDATE = 1, 4
(HELLO, PROVE, STAT, LIST, OPEN, READ, CLOSE, SUM, READLINK, CREATE, WRITE_FILE, COMMIT, MKDIR, REMOVE, SYMLINK, PLAY,
 GRANT, DRAFT, EDIT, SET, RENAME, SYNC, STATFS, EXTENTS, LEASE, LINK, OWN, XATTRS, SETXATTR, KEEP, REOPEN) = range(1, 32)
VERSION = 2
CREDITS = 32
WRITABLE = 1  # flag of HELLO
SENDABLE = 1400  # octets of payload in one segment


class Rdma:
    """Segments over a connection that has been started."""

    def __init__(self, link):
        self.link = link
        self.msn = 0

    def send(self, message, opcode=SEND, invalidate=0):
        self.msn += 1
        for at in range(0, len(message), SENDABLE):
            piece = message[at:at + SENDABLE]
            last = 0x40 if at + len(piece) == len(message) else 0
            self.link.sendall(fpdu(struct.pack(">BBIIII", last | 1, 0x40 | opcode, invalidate, 0, self.msn, at)
                                   + piece))

    def write(self, stag, address, data):
        for at in range(0, len(data), SENDABLE):
            piece = data[at:at + SENDABLE]
            last = 0x40 if at + len(piece) == len(data) else 0
            self.link.sendall(fpdu(struct.pack(">BBIQ", 0x81 | last, 0x40 | WRITE, stag, address + at) + piece))


class RawClient(Rdma):
    """Says what it likes. It reads only what recv_message() reads."""

    def __init__(self, port, receive_buffer=None, source="127.0.0.1"):
        link = socket.socket()
        link.bind((source, 0))
        if receive_buffer is not None:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        link.settimeout(60)
        link.connect(("127.0.0.1", port))
        super().__init__(link)
        link.sendall(b"MPA ID Req Frame" + bytes([0x40, 1, 0, 0]))
        head = FakePeer.take(link, 20)
        assert head[:16] == b"MPA ID Rep Frame" and not head[16] & 0x20, head
        FakePeer.take(link, struct.unpack(">H", head[18:20])[0])
        self.tag = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.link.close()

    def request(self, operation, body):
        self.tag += 1
        self.send(struct.pack(">B7xQ", operation, self.tag) + body)
        return self.tag

    def recv_message(self):
        """The next Send: (operation, error, tag, the rest). RDMA Writes before it are dropped."""
        message = b""
        while True:
            length = struct.unpack(">H", FakePeer.take(self.link, 2))[0]
            ulpdu = FakePeer.take(self.link, length + -(length + 2) % 4 + 4)[:length]
            if ulpdu[1] & 15 == 7:
                raise EOFError("a Terminate")
            if ulpdu[1] & 15 != SEND:
                continue
            message += ulpdu[18:]
            if ulpdu[0] & 0x40:
                operation, error, tag = struct.unpack(">B3xIQ", message[:16])
                return operation & 0x7F, error, tag, message[16:]

    def recv_read_request(self):
        """The next RDMA Read Request of the server, its DDP header included."""
        while True:
            length = struct.unpack(">H", FakePeer.take(self.link, 2))[0]
            ulpdu = FakePeer.take(self.link, length + -(length + 2) % 4 + 4)[:length]
            if ulpdu[1] & 15 == READ_REQUEST:
                return ulpdu

    def ask(self, operation, body):
        tag = self.request(operation, body)
        answer = self.recv_message()
        assert answer[0] == operation and answer[2] == tag, answer
        return answer[1], answer[3]

    def hello(self):
        return self.ask(HELLO, struct.pack(">I", VERSION) + bytes(32))

    def open(self, path):
        """Its handle; no octets of it are asked for."""
        error, rest = self.ask(OPEN, memory(0) + path.encode())
        assert error == 0, error
        return struct.unpack(">Q", rest[:8])[0]

    def ended(self):
        """Whether the server has ended the connection: what is on the way is read to its end."""
        try:
            while self.link.recv(1 << 20):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True


def memory(length, address=0, stag=0x12345600):
    return struct.pack(">QII", address, stag, length)


def attributes(mode, size, number=1):
    time = 1_600_000_000_000_000_000
    return struct.pack(">IIIIQQqqQQ", mode, 1, 0, 0, size, 0, time, time, number, 0)


def state(mode, size, number=1, level=1):
    """Of an open file."""
    return attributes(mode, size, number) + struct.pack(">QQI", 0, number, level)


def entry(name, info):
    return struct.pack(">H", len(name)) + info + name


class RawServer(FakePeer):
    """Answers each request by `answer_request(rdma, operation, tag, body)` of the test: it returns
    the error and the rest of the reply, or None for no reply. HELLO is answered here.
    """

    def __init__(self, answer_request, flags=0):
        self.answer_request = answer_request
        self.flags = flags  # of HELLO
        self.seen = []  # operations, in their order
        self.lock = threading.Lock()
        self.started = {}
        super().__init__("right")

    def url(self, path=""):
        return f"weft://127.0.0.1:{self.port}/{path}"

    def answer(self, link, ulpdu):
        if ulpdu[0] & 0x80 or ulpdu[1] & 15 != SEND:
            super().answer(link, ulpdu)
            return
        rdma, message = self.started.setdefault(link, (Rdma(link), bytearray()))
        message += ulpdu[18:]
        if not ulpdu[0] & 0x40:
            return
        operation, tag = struct.unpack(">B7xQ", message[:16])
        body = bytes(message[16:])
        message.clear()
        with self.lock:
            self.seen.append(operation)
        if operation == HELLO:
            reply = 0, struct.pack(">IIIIQ", VERSION, self.flags, CREDITS, 16 << 20, 1) + bytes(32)
        else:
            reply = self.answer_request(rdma, operation, tag, body)
        if reply is not None:
            self.reply(rdma, operation, tag, *reply)

    @staticmethod
    def reply(rdma, operation, tag, error, rest=b""):
        rdma.send(struct.pack(">BxxxIQ", operation | 0x80, error, tag) + rest)
