"""How contenders are called and drawn: the same in every plot."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Contender:
    label: str
    color: str      # a class of the page's style sheet
    dash: bool = False
    mark: str = "dot"   # dot, square, diamond


_ALL = {
    "weft-write": Contender("Weft write, CRC off", "weft", True),
    "weft-write-crc": Contender("Weft write, CRC on", "weft"),
    "weft-read": Contender("Weft read, CRC off", "read", True, "square"),
    "weft-read-crc": Contender("Weft read, CRC on", "read", False, "square"),
    "weft-send": Contender("Weft send, CRC off", "send", True, "diamond"),
    "weft-send-crc": Contender("Weft send, CRC on", "send", False, "diamond"),
    "weft-wait-crc": Contender("Weft send, CRC on, as shipped (polls for 50 us, then sleeps)",
                               "send", True),
    "weft-write16": Contender("Weft write, 16 posted together, CRC off", "batch", True),
    "weft-write16-crc": Contender("Weft write, 16 posted together, CRC on", "batch"),
    "dropin-write": Contender("ib_write over Weft, CRC on", "dropin"),
    "dropin-read": Contender("ib_read over Weft, CRC on", "dropin", False, "square"),
    "dropin-send": Contender("ib_send over Weft, CRC on", "dropin", False, "diamond"),
    "weft-connect": Contender("Weft", "weft"),
    "weft-connect-crc": Contender("Weft", "weft"),
    "tcp": Contender("raw TCP", "tcp"),
    "tcp-copy": Contender("TCP, and a copy to its place", "tcp"),
    "iperf3": Contender("iperf3 (sleeping)", "other", True),
    "sockperf": Contender("sockperf", "other", True, "square"),
    "qperf": Contender("qperf, average", "other", False, "diamond"),
    "ucx-tag": Contender("UCX tcp, tag", "ucx", False, "diamond"),
    "ucx-put": Contender("UCX tcp, put", "ucx"),
    "ucx-get": Contender("UCX tcp, get", "ucx", True, "square"),
    "libfabric": Contender("libfabric tcp, fi_pingpong", "fabric"),
    "ring-write": Contender("Weft write, by a ring", "weft"),
    "ring-send": Contender("Weft send, by a ring", "send", False, "diamond"),
    "tcp-write": Contender("Weft write over TCP, CRC off", "weft", True),
    "tcp-send": Contender("Weft send over TCP, CRC off", "send", True, "diamond"),
    "ring-connect": Contender("Weft, with the change to a ring", "weft"),
    "tcp-connect": Contender("Weft over TCP", "weft", True),
    "ucx-shm": Contender("UCX posix and cma, tag", "ucx", False, "diamond"),
    "ucx-own": Contender("UCX, its own choice, tag", "ucx", True, "square"),
    "libfabric-shm": Contender("libfabric shm, fi_pingpong", "fabric"),
    "memcpy": Contender("memcpy, one process", "other", True),
    "register": Contender("Weft: register memory", "weft"),
    "deregister": Contender("Weft: deregister", "read", True),
    "mlock": Contender("mlock", "tcp"),
    "post": Contender("Weft: post a 64 B write", "weft"),
    "null-call": Contender("a null system call", "tcp"),
    "exs-normal": Contender("normal", "read", False, "square"),
    "exs-immediate": Contender("immediate", "send", False, "diamond"),
    "exs-persistent": Contender("persistent", "batch", True),
    "exs-stream": Contender("stream", "weft"),
    "exs-tcp": Contender("TCP by the same calls", "tcp"),
    "exs-uring": Contender("TCP by io_uring", "other", True, "square"),
    "files-tcp": Contender("Weft over TCP", "weft"),
    "files-ring": Contender("Weft, by a ring", "read", False, "square"),
    "files-nginx": Contender("nginx sendfile and curl", "tcp"),
    "lwip-plain": Contender("TCP with copy, lwIP as it comes", "tcp", True),
    "lwip-tcp": Contender("TCP with copy, Weft's checksum", "tcp"),
    "weft-lwip": Contender("RDMA Write, CRC off", "weft", True),
    "weft-lwip-crc": Contender("RDMA Write, CRC on", "weft"),
    "weft-lwip-markers": Contender("RDMA Write, CRC and markers", "read", False, "square"),
    "files-plain": Contender("pread and send", "other", True),
    "files-cp": Contender("cp", "tcp"),
    "files-nc": Contender("nc", "tcp"),
    "files-fio": Contender("fio, O_DIRECT, 16 at once", "tcp"),
    "files-bindfs": Contender("bindfs, of the same folder", "tcp"),
    "files-rsync": Contender("rsync daemon", "other", True, "diamond"),
}

# Along a path: the FPDU policy is part of the name.
for _policy, _mark in (("auto", "dot"), ("mss", "square"), ("16k", "diamond"), ("64k", "dot")):
    for _markers in (False, True):
        _color = {"auto": "weft", "mss": "read", "16k": "send", "64k": "batch"}[_policy]
        _ALL[f"weft-{_policy}" + ("-markers" if _markers else "")] = Contender(
            f"Weft write, FPDUs {_policy}" + (", markers" if _markers else ""), _color, _markers,
            _mark)


def contender(name):
    return _ALL.get(name, Contender(name, "other"))


def order(name):
    """As in the list above."""
    names = list(_ALL)
    return names.index(name) if name in names else len(names)
