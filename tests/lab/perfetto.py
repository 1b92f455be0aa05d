"""Reads Perfetto's traces as far as tests need it: processes, tracks, slices, arrows.

protobuf is read by hand: a field is a varint of number and kind, then a varint, 8 octets, or a
length and so many octets."""

import struct


def fields(octets):
    """All (number, value) of a message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            octet = octets[at]
            at += 1
            value |= (octet & 0x7F) << shift
            if octet < 0x80:
                return value
            shift += 7

    while at < len(octets):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        elif kind == 1:
            value = struct.unpack_from("<Q", octets, at)[0]
            at += 8
        elif kind == 2:
            size = varint()
            value = octets[at:at + size]
            if len(value) != size:
                raise ValueError("a message that is cut short")
            at += size
        else:
            raise ValueError(f"kind {kind} of field")
        yield key >> 3, value


class Slice:
    def __init__(self, track, begin, event):
        self.track = track
        self.begin = begin
        self.end = None
        self.name = event[23].decode()
        self.flow = event.get(47)
        self.flow_end = event.get(48)


class Trace:
    def __init__(self, octets):
        self.processes = {}  # uuid: name
        self.parents = {}  # uuid of a track: uuid of its process
        self.slices = []
        open_slices = {}
        for number, packet in fields(octets):
            if number != 1:
                raise ValueError(f"field {number} of a trace")
            packet = dict(fields(packet))
            if 60 in packet:
                track = dict(fields(packet[60]))
                if 3 in track:
                    self.processes[track[1]] = dict(fields(track[3]))[6].decode()
                else:
                    self.parents[track[1]] = track[5]
            if 11 not in packet:
                continue
            event = dict(fields(packet[11]))
            stack = open_slices.setdefault(event[11], [])
            if event[9] == 1:
                one = Slice(event[11], packet[8], event)
                self.slices.append(one)
                stack.append(one)
            elif event[9] == 2:
                stack.pop().end = packet[8]
        if any(open_slices.values()):
            raise ValueError("a slice without an end")
        if any(one.end < one.begin for one in self.slices):
            raise ValueError("a slice that ends before it begins")

    def process_of(self, one):
        return self.parents[one.track]
