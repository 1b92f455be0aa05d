"""An iWARP responder that breaks rules on request, for the tests of `weft selftest`.

It answers a Request in kind, a Read of nothing with a Read Response of nothing, and a Write to STag
0x00666600 as its `manner` says; it looks at nothing else. Plain sockets, one thread per connection.
"""

import socket
import struct
import threading

from crc32c import crc32c

REPLY_KEY = b"MPA ID Rep Frame"
BAD_STAG = 0x00666600


def fpdu(ulpdu, spoil=0):
    body = struct.pack(">H", len(ulpdu)) + ulpdu
    body += bytes(-len(body) % 4)
    return body + struct.pack("<I", crc32c(body) ^ spoil)


def terminate(control, offending):
    """RFC 5040 4.8, with length and DDP header of a tagged segment; `control` is four octets."""
    header = struct.pack(">BBIIII", 0x41, 0x47, 0, 2, 1, 0)
    return header + control + struct.pack(">H", len(offending)) + offending[:14]


class FakePeer:
    """Listens on a port of 127.0.0.1 until close().

    manner, at a Write to an unknown STag:
      right         Terminate 1/1/00, then the end
      siw           the same in the octet order of Linux siw
      wrong-code    Terminate 1/1/01
      wrong-header  Terminate 1/1/00 with another header attached
      silent        nothing
      hang-up       the end without a Terminate
      stays         Terminate, but the connection stays open
      takes-all     ends every connection
      garbles       Terminate with a wrong CRC
    """

    def __init__(self, manner):
        self.manner = manner
        self.connections = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.acceptor = threading.Thread(target=self.accept, daemon=True)
        self.acceptor.start()

    def close(self):
        # A thread on its way into accept() takes a number there, and the next socket may have it.
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:  # closed before
            pass
        self.acceptor.join()
        self.listener.close()
        self.hang_up(*self.connections)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def accept(self):
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(link)
            threading.Thread(target=self.serve, args=(link,), daemon=True).start()

    @staticmethod
    def hang_up(*links):
        for link in links:
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    @staticmethod
    def take(link, count):
        data = b""
        while len(data) < count:
            more = link.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def serve(self, link):
        try:
            head = self.take(link, 20)
            data = self.take(link, struct.unpack(">H", head[18:20])[0])
            flags = head[16] & 0x50  # C and S as in the Request; no word of markers
            words = data[:4] if flags & 0x10 else b""
            link.sendall(REPLY_KEY + bytes([flags, head[17]]) + struct.pack(">H", len(words)) + words)
            while True:
                length = struct.unpack(">H", self.take(link, 2))[0]
                rest = self.take(link, length + -(length + 2) % 4 + 4)
                self.answer(link, rest[:length])
        except (EOFError, OSError):
            link.close()

    def answer(self, link, ulpdu):
        if len(ulpdu) == 46 and ulpdu[1] == 0x41:
            stag, to, size = struct.unpack(">IQI", ulpdu[18:34])
            if size == 0:
                link.sendall(fpdu(struct.pack(">BBIQ", 0xC1, 0x42, stag, to)))
        elif ulpdu[:2] == b"\xc1\x40" and ulpdu[2:6] == struct.pack(">I", BAD_STAG) and len(ulpdu) > 14:
            self.misbehave(link, ulpdu)

    def misbehave(self, link, ulpdu):
        rfc, siw, bounds = b"\x11\x00\xc0\x00", b"\x11\x00\x03\x00", b"\x11\x01\xc0\x00"
        other = ulpdu[:6] + bytes(len(ulpdu) - 6)
        says = {
            "right": fpdu(terminate(rfc, ulpdu)),
            "siw": fpdu(terminate(siw, ulpdu)),
            "wrong-code": fpdu(terminate(bounds, ulpdu)),
            "wrong-header": fpdu(terminate(rfc, other)),
            "stays": fpdu(terminate(rfc, ulpdu)),
            "garbles": fpdu(terminate(rfc, ulpdu), spoil=1),
        }
        link.sendall(says.get(self.manner, b""))
        if self.manner == "takes-all":
            self.hang_up(*self.connections)
        elif self.manner not in ("silent", "stays"):
            self.hang_up(link)
