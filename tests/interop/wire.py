"""Reads a capture of iWARP traffic and renders each MPA frame and FPDU as one line.

    client request rev=2 M=0 C=1 S=1 R=0 pd=60 ird=8 ord=8 p2p=0 rtr=none
    server reply rev=2 ...
    client Write len=0 crc=ok
    server Terminate len=20 crc=ok control=01030000

"client" is the side that opened the TCP connection; pd counts the private data without the four
octets of RFC 6581; len is of the payload; control is the Terminate Control Field as sent. Markers
are not read: the peers here never ask for them. Classic pcap, Ethernet, IPv4.
"""

import struct

from crc32c import crc32c

OPCODES = ["Write", "ReadRequest", "ReadResponse", "Send", "SendInv", "SendSE", "SendSEInv",
           "Terminate", "Immediate", "ImmediateSE", "AtomicRequest", "AtomicResponse"]
KEYS = {b"MPA ID Req Frame": "request", b"MPA ID Rep Frame": "reply"}
RTR = {0: "none", 0x8000: "write", 0x4000: "read", 0xC000: "both"}


def packets(path):
    """TCP segments of a capture: (source, destination, flags, sequence number, payload)."""
    data = path.read_bytes()
    if len(data) < 24 or data[:4] != b"\xd4\xc3\xb2\xa1":
        raise ValueError(f"{path} is no little-endian pcap file")
    at = 24
    while at + 16 <= len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        frame = data[at + 16 : at + 16 + size]
        at += 16 + size
        if len(frame) < 54 or frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        ip_size = (frame[14] & 15) * 4
        ip_len = struct.unpack_from(">H", frame, 16)[0] or len(frame) - 14
        tcp = frame[14 + ip_size : 14 + ip_len]
        sport, dport, seq = struct.unpack_from(">HHI", tcp)
        source, destination = (frame[26:30], sport), (frame[30:34], dport)
        yield source, destination, tcp[13], seq, tcp[(tcp[12] >> 4) * 4 :]


class Direction:
    """Puts the segments of one direction in order."""

    def __init__(self):
        self.next = None
        self.data = bytearray()
        self.early = {}

    def add(self, seq, payload):
        if self.next is None:
            self.next = seq
        self.early[seq] = max(payload, self.early.get(seq, b""), key=len)
        moved = True
        while moved:
            moved = False
            for start in list(self.early):
                skip = (self.next - start) & 0xFFFFFFFF
                if skip < 1 << 31:
                    piece = self.early.pop(start)[skip:]
                    self.data += piece
                    self.next = (self.next + len(piece)) & 0xFFFFFFFF
                    moved = moved or bool(piece)


def connections(path):
    """The TCP connections that begin in the capture: [(client stream, server stream)]."""
    found = []
    live = {}
    for source, destination, flags, seq, payload in packets(path):
        if flags & 0x02 and not flags & 0x10:  # SYN: a new connection
            if live.get((source, destination), (None,))[0] == seq:
                continue  # sent again
            pair = Direction(), Direction()
            live[source, destination] = seq, pair[0]
            live[destination, source] = None, pair[1]
            found.append(pair)
        if (source, destination) in live:
            direction = live[source, destination][1]
            direction.add(seq + 1 if flags & 0x02 else seq, payload)
    return [(bytes(c.data), bytes(s.data)) for c, s in found]


def start_frame(data):
    """Renders the frame at the front of a stream: (line, octets it takes, flags)."""
    kind = KEYS.get(data[:16])
    if kind is None or len(data) < 20:
        return None
    flags, revision, size = struct.unpack_from(">BBH", data, 16)
    line = f"{kind} rev={revision} M={flags >> 7} C={flags >> 6 & 1} S={flags >> 4 & 1} R={flags >> 5 & 1}"
    if flags & 0x10 and size >= 4:
        ird, ord_ = struct.unpack_from(">HH", data, 20)
        line += f" pd={size - 4} ird={ird & 0x3FFF} ord={ord_ & 0x3FFF} p2p={ird >> 15}"
        line += f" rtr={RTR[ord_ & 0xC000]}"
    else:
        line += f" pd={size}"
    return line, 20 + size, flags


def fpdus(data, with_crc):
    at = 0
    while at + 2 <= len(data):
        size = struct.unpack_from(">H", data, at)[0]
        pad = -(size + 2) % 4
        end = at + 2 + size + pad + 4
        if end > len(data) or size < 14:
            yield f"cut or not an FPDU: {data[at:at + 24].hex()}"
            return
        ulpdu = data[at + 2 : at + 2 + size]
        crc = struct.unpack_from("<I", data, end - 4)[0]
        state = "off" if not with_crc else "ok" if crc32c(data[at : end - 4]) == crc else "BAD"
        at = end
        opcode = ulpdu[1] & 15
        name = OPCODES[opcode] if opcode < len(OPCODES) else f"opcode{opcode}"
        payload = ulpdu[14 if ulpdu[0] & 0x80 else 18 :]
        line = f"{name} len={len(payload)} crc={state}"
        if name == "Terminate":
            line += f" control={payload[:4].hex()}"
        elif name == "SendInv":
            line += f" stag={ulpdu[2:6].hex()}"
        yield line


def render(path):
    """Lines for all connections of a capture, one connection after the other."""
    lines = []
    for client, server in connections(path):
        starts = start_frame(client), start_frame(server)
        # CRC is in use when either side has asked for it; a Reply tells what holds.
        with_crc = any(s and s[2] & 0x40 for s in starts)
        for side, data, start in zip(("client", "server"), (client, server), starts):
            if start is None:
                if data:
                    lines.append(f"{side} no start-up frame: {data[:24].hex()}")
                continue
            lines.append(f"{side} {start[0]}")
            lines += [f"{side} {line}" for line in fpdus(data[start[1] :], with_crc)]
    return lines
