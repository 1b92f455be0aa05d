#!/usr/bin/env python3
"""Programs of other projects that know verbs, unmodified: fio, qperf, pyverbs, libfabric."""

import os
import tempfile

from harness import (CRASH_IN_LIBFABRIC, Failure, Skip, again_if, check, free_port, main,
                     need)
from ucx_programs import MPI_PROGRAM

LIMIT_S = 100
SYSTEM_PYTHON = "/usr/bin/python3"  # python3-pyverbs is made for this one


def fio(network):
    """Its rdma engine. Its Sends come before their receives: recv_wait lets them wait."""
    need("fio")
    if "rdma" not in network.start(["fio", "--enghelp"], raw=True).expect(0, LIMIT_S):
        raise Skip("this fio has no rdma engine")
    for verb in ("write", "read", "send"):
        port = free_port()
        common = ["ioengine=rdma", f"port={port}", "bs=64k", "size=20m", "iodepth=16"]
        receiver = ["[receiver]", *common, "rw=read"]
        sender = ["[sender]", *common, "rw=write", f"verb={verb}",
                  f"hostname={network.server.v4}"]
        with tempfile.TemporaryDirectory() as folder:
            jobs = []
            for name, lines in (("receiver", receiver), ("sender", sender)):
                jobs.append(os.path.join(folder, f"{name}.fio"))
                with open(jobs[-1], "w", encoding="ascii") as file:
                    file.write("\n".join(lines) + "\n")
            server = network.start(["fio", jobs[0]]).listening(port)
            out = network.connect(["fio", jobs[1]]).expect(0, LIMIT_S)
            server.expect(0, LIMIT_S)
            check("err= 0" in out, out)


QPERF_TESTS = ("rc_lat", "rc_rdma_write_lat", "rc_rdma_read_bw", "rc_rdma_read_lat") * 2


def qperf(network, tests=QPERF_TESTS):
    """Tests with -cm 1, that is by rdma_cm, each twice: its server names its port before it
    listens there, and a quick client must not be refused. (A time below one second is none to
    qperf: its clients never end then, over TCP either.)"""
    need("qperf")
    port = free_port()
    server = network.start(["qperf", "-lp", port]).listening(port)
    for test in tests:
        client = network.connect(["qperf", "-lp", port, "-cm", 1, "-t", 1, network.server.v4, test])
        out = client.expect(0, LIMIT_S)
        check("bw  =" in out or "latency  =" in out, f"{test}: {out}")
    server.kill()


PYVERBS_OBJECTS = """
import pyverbs.enums as e
from pyverbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr

def refused(call, error):
    try:
        call()
    except PyverbsRDMAError as why:
        assert why.error_code == error, (why, why.error_code)
        return
    raise AssertionError("not refused")

assert b"weft0" in [device.name for device in get_device_list()]
context = Context(name="weft0")
device = context.query_device()
assert context.query_device_ex().orig_attr.max_qp == device.max_qp > 0
port = context.query_port(1)
assert (port.state, port.link_layer) == (e.IBV_PORT_ACTIVE, e.IBV_LINK_LAYER_ETHERNET)
assert str(context.query_gid(1, 0)) in str(context.query_gid_ex(1, 0))
assert len(context.query_gid_table(4)) == 1 and context.query_gid_type(1, 0) == 0
assert context.query_pkey(1, 0) == 0xffff
pd = PD(context)
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_RELAXED_ORDERING)
mr.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, None, 0, 0, e.IBV_ACCESS_LOCAL_WRITE)
refused(lambda: mr.rereg(1 << 10, None, 0, 0, 0), 22)
cq = CQ(context, 100, None, CompChannel(context), 0)
cq.resize(200)
CQEX(context, CqInitAttrEx(cqe=20, wc_flags=e.IBV_WC_STANDARD_FLAGS))
timestamps = CqInitAttrEx(cqe=20, wc_flags=e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
refused(lambda: CQEX(context, timestamps), 95)
srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=20, max_sge=2)))
srq.modify(SrqAttr(srq_limit=5), e.IBV_SRQ_LIMIT)
assert srq.query().max_wr >= 20
qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, srq=srq,
                       cap=QPCap(max_send_wr=10, max_recv_wr=10)))
assert qp.query(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_INIT
refused(qp.query_ece, 95)
"""

PYVERBS_CM = """
import sys
import pyverbs.cm_enums as ce
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.qp import QPCap, QPInitAttr

address, port, passive = sys.argv[1], sys.argv[2], sys.argv[3] == "server"
attr = QPInitAttr(cap=QPCap(max_recv_wr=4))
if passive:
    listener = CMID(creator=AddrInfo(src=address, src_service=port, port_space=ce.RDMA_PS_TCP,
                                     flags=ce.RAI_PASSIVE), qp_init_attr=attr)
    listener.listen()
    id = listener.get_request()
else:
    id = CMID(creator=AddrInfo(dst=address, dst_service=port, port_space=ce.RDMA_PS_TCP),
              qp_init_attr=attr)
into, out = id.reg_msgs(100), id.reg_msgs(100)
id.post_recv(into, 100)
id.accept() if passive else id.connect()
for i in range(10):
    if not passive:
        out.write("ping %d" % i, 6)
        id.post_send(out, 6)
        id.get_send_comp()
    assert id.get_recv_comp().byte_len == 100
    assert into.read(6, 0) == b"ping %d" % i
    id.post_recv(into, 100)
    if passive:
        out.write("ping %d" % i, 6)
        id.post_send(out, 6)
        id.get_send_comp()
id.disconnect()
"""


def fi_pingpong(network):
    """libfabric's verbs provider, alone and below its layer for datagrams. It leaves the loopback
    interface out, so it needs an address of another: between two namespaces, and within one."""
    need("fi_pingpong")
    if network.name != "namespaces":
        raise Skip("libfabric uses no loopback interface: it is run between namespaces")
    for provider, endpoint in (("verbs", "msg"), ("verbs;ofi_rxm", "rdm")):
        for client in (network.connect, network.start):
            again_if(CRASH_IN_LIBFABRIC, "libfabric crashed in its own code",
                     lambda p=provider, e=endpoint, c=client: fi_pingpong_once(network, p, e, c))


def fi_pingpong_once(network, provider, endpoint, client):
    port = free_port()
    common = ["fi_pingpong", "-p", provider, "-e", endpoint, "-I", 20, "-S", 4096]
    server = network.start([*common, "-B", port]).listening(port)
    out = client([*common, "-P", port, network.server.v4]).expect(0, LIMIT_S)
    server.expect(0, LIMIT_S)
    check("4k" in out, out)


def open_mpi(network):
    """Open MPI over libfabric's verbs provider, iWARP: two ranks, both on one host."""
    need("mpirun")
    if network.name != "namespaces":
        raise Skip("libfabric uses no loopback interface: it is run between namespaces")
    if network.start([SYSTEM_PYTHON, "-c", "import mpi4py"], raw=True).wait(LIMIT_S) != 0:
        raise Skip("python3-mpi4py is not installed (scripts/install-deps.sh test)")
    again_if(CRASH_IN_LIBFABRIC, "libfabric crashed in its own code",
             lambda: open_mpi_once(network))


def open_mpi_once(network):
    provider = "verbs;ofi_rxm"
    with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
        program.write(MPI_PROGRAM)
        program.flush()
        argv = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", 2, "--mca", "pml", "cm",
                "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", provider, "--mca",
                "opal_common_ofi_provider_include", provider, "--mca", "osc", "^ucx,rdma",
                "--mca", "mpi_yield_when_idle", 1, SYSTEM_PYTHON, program.name]
        out = network.start(argv).expect(0, LIMIT_S)
    for rank in range(2):
        check(f"rank {rank} done" in out, out)


def need_pyverbs(network):
    if not os.path.exists(SYSTEM_PYTHON):
        raise Skip(f"no {SYSTEM_PYTHON}")
    if network.start([SYSTEM_PYTHON, "-c", "import pyverbs"], raw=True).wait(LIMIT_S) != 0:
        raise Skip("python3-pyverbs is not installed")


def pyverbs(network):
    need_pyverbs(network)
    network.start([SYSTEM_PYTHON, "-c", PYVERBS_OBJECTS]).expect(0, LIMIT_S)
    port = free_port()
    server = network.start([SYSTEM_PYTHON, "-c", PYVERBS_CM, network.server.v4, port, "server"])
    server.listening(port)
    client = network.connect([SYSTEM_PYTHON, "-c", PYVERBS_CM, network.server.v4, port, "client"])
    try:
        client.expect(0, LIMIT_S)
        server.expect(0, LIMIT_S)
    except Failure as why:
        raise Failure(f"{why}\n{server.tail()}") from None


if __name__ == "__main__":
    main({
        "fio": fio,
        "open_mpi": open_mpi,
        "qperf": qperf,
        "pyverbs": pyverbs,
        "fi_pingpong": fi_pingpong,
    })
