#!/usr/bin/env python3
"""Weft's libraries are found in each way that programs look for libibverbs, by LD_LIBRARY_PATH and
by LD_PRELOAD.

    loader.py CASE...      WEFT_TEST_BIN_DIR: folder of loader_probe and loader_module.so
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

from harness import WEFT, Skip, check, main

LIMIT_S = 30
PROBE = os.path.join(os.environ.get("WEFT_TEST_BIN_DIR", "."), "loader_probe")
MODULE = os.path.join(os.environ.get("WEFT_TEST_BIN_DIR", "."), "loader_module.so")


def probe(how, *more):
    def case(network):
        for options in ((), ("--preload",)):
            network.start([PROBE, how, *more], options=options).expect(0, LIMIT_S)
    return case


def from_python(network):
    """ctypes, that is dlopen by name in a program that is not linked with it."""
    code = """
import ctypes
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
count = ctypes.c_int()
devices = verbs.ibv_get_device_list(ctypes.byref(count))
names = [verbs.ibv_get_device_name(ctypes.c_void_p(devices[i])) for i in range(count.value)]
assert b"weft0" in names, names
cm = ctypes.CDLL("librdmacm.so.1")
cm.rdma_event_str.restype = ctypes.c_char_p
assert cm.rdma_event_str(9) == b"RDMA_CM_EVENT_ESTABLISHED"
"""
    for options in ((), ("--preload",)):
        network.start([sys.executable, "-c", code], options=options).expect(0, LIMIT_S)


def without_real_library(network):
    """As on a machine without rdma-core's own libraries."""
    network.start([PROBE, "linked"], env={"WEFT_REAL_DIR": ""}).expect(0, LIMIT_S)
    network.start(["ibv_devinfo"], env={"WEFT_REAL_DIR": ""}).expect(0, LIMIT_S)


def beside_driver_libraries(network):
    """perftest is linked with libmlx5 and libefa, whose private symbols must all be there at
    start-up (they are linked so that a missing one is fatal)."""
    if shutil.which("ib_write_bw") is None:
        raise Skip("perftest is not installed")
    needed = subprocess.run(["ldd", shutil.which("ib_write_bw")], capture_output=True, text=True,
                            check=True).stdout
    check("libmlx5" in needed, "this perftest is not linked with a driver library")
    out = network.start(["ib_write_bw", "--version"], env={"LD_BIND_NOW": "1"})
    out.wait(LIMIT_S)
    check("Version" in out.output(), out.tail())


def same_symbols(network):
    """Every symbol of the installed library is there, under the same version."""
    del network
    real = next((p for p in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                             "/usr/lib64") if os.path.exists(f"{p}/libibverbs.so.1")), None)
    if real is None or shutil.which("readelf") is None:
        raise Skip("no installed libibverbs to compare with")
    mine = os.path.join(os.path.dirname(os.path.dirname(WEFT)), "lib", "weft")

    def exported(path):
        text = subprocess.run(["readelf", "-W", "--dyn-syms", path], capture_output=True, text=True,
                              check=True).stdout
        rows = [line.split() for line in text.splitlines()]
        return {row[7] for row in rows if len(row) > 7 and row[6] != "UND" and "@@" in row[7]}

    for name in ("libibverbs.so.1", "librdmacm.so.1"):
        missing = exported(f"{real}/{name}") - exported(f"{mine}/{name}")
        check(not missing, f"{name} lacks {sorted(missing)}")


def beside_real_devices(network):
    """A machine with a device of its own: a file system for this test only says that it has one,
    and vendor_verbs.c is its library."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        raise Skip("a mount namespace needs root and unshare")
    folder = os.environ.get("WEFT_TEST_BIN_DIR", ".")
    pretend = "mount -t tmpfs none /sys/class && mkdir /sys/class/infiniband"
    if network.start(["unshare", "-m", "sh", "-c", pretend], raw=True).wait(LIMIT_S) != 0:
        raise Skip("no mount namespaces here")
    program = os.path.join(folder, "two_vendors")
    network.start(["unshare", "-m", "sh", "-c", f'{pretend} && exec "$0" run -- "$1"', WEFT, program],
                  env={"WEFT_REAL_DIR": os.path.join(folder, "vendor")}, raw=True).expect(0, LIMIT_S)


@contextlib.contextmanager
def pretended_kernel(network, devices):
    """A kernel that has rdma_ucm, and `devices`: a function that runs a command there. Only names
    are there, in a mount namespace for each command."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        raise Skip("a mount namespace needs root and unshare")
    script = """set -e
mount -t tmpfs none /sys/class
mkdir /sys/class/infiniband
for device in $DEVICES; do mkdir "/sys/class/infiniband/$device"; done
mount -t tmpfs none "$0"
mkdir "$0/infiniband" "$0/shm"
touch "$0/infiniband/rdma_cm"
for node in null zero urandom; do touch "$0/$node"; mount --bind "/dev/$node" "$0/$node"; done
mount --rbind "$0" /dev
exec "$@"
"""
    with tempfile.TemporaryDirectory(prefix="weft-dev-") as folder:
        def start(argv, **more):
            env = {"DEVICES": " ".join(devices), **more.pop("env", {})}
            return network.start(["unshare", "-m", "sh", "-c", script, folder, *argv], env=env,
                                 raw=True, **more)

        if start(["true"]).wait(LIMIT_S) != 0:
            raise Skip("no mount namespaces here")
        yield start


def rdma_cm_without_device(network):
    """The kernel's rdma_ucm is loaded and has no device: rdma_cm is Weft's, unless the user wants
    the machine's own. `weft doctor` says so."""
    code = """
import ctypes
cm = ctypes.CDLL("librdmacm.so.1")
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_name.restype = ctypes.c_char_p
cm.rdma_get_devices.restype = ctypes.POINTER(ctypes.c_void_p)
contexts = cm.rdma_get_devices(None)
assert contexts and contexts[0], "no device"
device = ctypes.cast(contexts[0], ctypes.POINTER(ctypes.c_void_p))[0]
assert verbs.ibv_get_device_name(ctypes.c_void_p(device)) == b"weft0"
cm.rdma_create_event_channel.restype = ctypes.c_void_p
assert cm.rdma_create_event_channel(), "no event channel"
"""
    program = [sys.executable, "-c", code]
    with pretended_kernel(network, []) as start:
        said = start([WEFT, "run", "--", *program]).expect(0, LIMIT_S)
        check("this machine has" not in said, said)
        start([WEFT, "run", "--real-cm=auto", "--", *program]).expect(0, LIMIT_S)
        listed = start([WEFT, "devices"]).expect(0, LIMIT_S)
        check("rdma_cm    weft" in listed, listed)
        doctor = start([WEFT, "doctor"])
        doctor.wait(LIMIT_S)
        check("rdma_ucm is loaded" in doctor.output(), doctor.tail())
        wished = start([WEFT, "doctor"], env={"WEFT_REAL_CM": "on"}).expect(1, LIMIT_S)
        check("unset WEFT_REAL_CM" in wished, wished)


def kernel_device_is_named(network):
    """Where the kernel has a device, `weft run` says in one line which one programs get, and how to
    get the other."""
    with pretended_kernel(network, ["siw0"]) as start:
        def said(*options, env=None):
            lines = start([WEFT, "run", *options, "--", "true"], env=env or {}).expect(0, LIMIT_S)
            return lines.splitlines()

        real = ["weft: this machine has siw0: programs that use rdma_cm get siw0 (--real-cm=off for "
                "weft0); others are shown siw0 before weft0, and choose by name"]
        mine = ["weft: this machine has siw0: programs that use rdma_cm get weft0 (--real-cm=on for "
                "siw0); others are shown siw0 before weft0, and choose by name"]
        for got, expected in ((said(), real), (said("--real-cm=on"), real),
                              (said("--real-cm=off"), mine),
                              (said(env={"WEFT_REAL_CM": "off"}), mine),
                              (said("--real-cm=auto", env={"WEFT_REAL_CM": "off"}), real),
                              (said("--log=error"), []), (said(env={"WEFT_REAL_DIR": ""}), [])):
            check(got == expected, f"{got}\nexpected {expected}")
        listed = start([WEFT, "devices"]).expect(0, LIMIT_S)
        check("rdma_cm    the machine's own" in listed, listed)
        doctor = start([WEFT, "doctor"])
        doctor.wait(LIMIT_S)
        check("--real-cm=off" in doctor.output(), doctor.tail())
    wrong = network.start([WEFT, "run", "--", "true"], env={"WEFT_REAL_CM": "maybe"}, raw=True)
    check("WEFT_REAL_CM: 'maybe'" in wrong.expect(2, LIMIT_S), wrong.tail())


def private_functions(network):
    """Those of driver libraries lead on to the real library; without one they say what to do."""
    code = """
import ctypes, resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_cmd_dealloc_pd(None)
"""
    process = network.start([sys.executable, "-c", code], env={"WEFT_REAL_DIR": ""})
    status = process.wait(LIMIT_S)
    check(status == -6, f"ended with {status}\n{process.tail()}")
    for text in ("ibv_cmd_dealloc_pd", "no real libibverbs.so.1", "Install rdma-core"):
        check(text in process.output(), process.tail())


def later_releases(network):
    """What releases of rdma-core after Debian's added is there, under its version."""
    code = """
import ctypes, errno
verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
cm = ctypes.CDLL("librdmacm.so.1", use_errno=True)
find = ctypes.CDLL(None).dlvsym
find.restype = ctypes.c_void_p
find.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
for library, name, version in ((verbs, b"ibv_reg_mr_ex", b"IBVERBS_1.15"),
                               (verbs, b"ibv_query_port_speed", b"IBVERBS_1.16"),
                               (verbs, b"ibv_alloc_buf", b"IBVERBS_1.17"),
                               (verbs, b"ibv_create_comp_cntr", b"IBVERBS_1.18"),
                               (verbs, b"ibv_export_buf_dmabuf_fd", b"IBVERBS_1.18"),
                               (cm, b"rdma_write_cm_event", b"RDMACM_1.4"),
                               (cm, b"repoll_create", b"RDMACM_1.5")):
    assert find(library._handle, name, version), (name, version)
verbs.ibv_reg_mr_ex.restype = ctypes.c_void_p
assert verbs.ibv_reg_mr_ex(None, None) is None
assert ctypes.get_errno() == errno.EINVAL, ctypes.get_errno()  # no domain of Weft's
assert verbs.ibv_free_buf(None) == errno.EOPNOTSUPP
assert cm.repoll_create(0) == -1 and ctypes.get_errno() == errno.ENOSYS
assert cm.rdma_write_cm_event(None, 18, 0, 0) == -1
assert ctypes.get_errno() == errno.EINVAL, ctypes.get_errno()
"""
    network.start([sys.executable, "-c", code]).expect(0, LIMIT_S)


def sysfs(network):
    """Programs that open files of /sys themselves find weft0 there, unless that is switched off;
    other paths are what they were. Below a network interface it is the machine's own folder."""
    if not os.path.exists(os.path.join(os.path.dirname(os.path.dirname(WEFT)), "lib", "weft",
                                       "weft-paths.so")):
        raise Skip("built without weft-paths.so")
    code = """
import ctypes, os
top = "/sys/class/infiniband"
assert "weft0" in os.listdir(top), os.listdir(top)
def text(name):
    with open(f"{top}/weft0/{name}") as file:
        return file.read()
assert text("node_type") == "4: RNIC\\n"
assert text("ports/1/state") == "4: ACTIVE\\n"
assert len(text("node_guid").strip()) == 19
assert os.stat(f"{top}/weft0/ports/1/gids/0").st_size > 0
assert not os.path.exists(f"{top}/weft99")
with open("/sys/class/infiniband_verbs/uverbs-weft0/ibdev") as file:
    assert file.read() == "weft0\\n"
for name in os.listdir("/sys/class/net"):
    link = f"{top}/weft0/device/net/{name}"
    if os.path.exists(link):
        with open(link + "/ifindex") as seen, open(f"/sys/class/net/{name}/ifindex") as real:
            assert seen.read() == real.read()
buffer = ctypes.create_string_buffer(64)
verbs = ctypes.CDLL("libibverbs.so.1")
assert verbs.ibv_read_sysfs_file(f"{top}/weft0".encode(), b"node_guid", buffer, 64) == 19
assert buffer.value.decode() == text("node_guid").strip()
"""
    network.start([sys.executable, "-c", code]).expect(0, LIMIT_S)
    network.start(["sh", "-c", "cat /sys/class/infiniband/weft0/ports/1/link_layer"]).expect(0, LIMIT_S)
    off = network.start(["cat", "/sys/class/infiniband/weft0/node_type"], options=["--sysfs=off"])
    off.expect_clean_failure(LIMIT_S)


if __name__ == "__main__":
    main({
        "linked": probe("linked"),
        "dlopen": probe("dlopen"),
        "dlvsym": probe("dlvsym"),
        "global": probe("global"),
        "deepbind": probe("deepbind", MODULE),
        "from_python": from_python,
        "without_real_library": without_real_library,
        "beside_driver_libraries": beside_driver_libraries,
        "same_symbols": same_symbols,
        "later_releases": later_releases,
        "beside_real_devices": beside_real_devices,
        "rdma_cm_without_device": rdma_cm_without_device,
        "kernel_device_is_named": kernel_device_is_named,
        "private_functions": private_functions,
        "sysfs": sysfs,
    })
