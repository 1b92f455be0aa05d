"""rdma-core's tests of verbs and rdma_cm by Python, as Debian's python3-pyverbs has them."""

import gzip
import json
import os
import pathlib
import subprocess
import tempfile

import child
import harness

PACKAGED = pathlib.Path("/usr/share/doc/rdma-core/tests")
PYTHON = "/usr/bin/python3"  # whose pyverbs it is
RUNNER = str(pathlib.Path(__file__).with_name("pyverbs_runner.py"))
MARK = "@case "
DEVICES = ("roce", "iwarp")
CASE_LIMIT_S = 60
# The modules that say most in the shortest time.
QUICK = ("roce/test_atomic.", "roce/test_cq", "roce/test_mr.", "roce/test_qp",
         "iwarp/test_mr.", "iwarp/test_cq.", "iwarp/test_pd.")
# Of rdma_cm, those that pass: the others wait for each other for seconds.
QUICK_CM = "test_rdmacm.CMTestCase.test_rdmacm_sync_traffic"

_unpacked = None


def version():
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "python3-pyverbs"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout:
        raise harness.Skip("python3-pyverbs is not installed (scripts/install-deps.sh suites)")
    return f"rdma-core {done.stdout}"


def folder():
    """A folder with the tests, unpacked; it goes when this process ends."""
    global _unpacked
    if _unpacked is None:
        if not PACKAGED.is_dir():
            raise harness.Skip(f"{PACKAGED} is missing: dpkg was told to leave out documentation")
        _unpacked = tempfile.TemporaryDirectory(prefix="weft-pyverbs-")
        target = pathlib.Path(_unpacked.name) / "tests"
        target.mkdir()
        for path in PACKAGED.iterdir():
            data = path.read_bytes()
            if path.suffix == ".gz":
                data = gzip.decompress(data)
            (target / path.name.removesuffix(".gz")).write_bytes(data)
    return _unpacked.name


def command(device, *words):
    return [harness.WEFT, "run", "--personality", device, "--log", "off", "--", PYTHON, "-u", RUNNER,
            folder(), "--dev", "weft0", "--gid", "0", *words]


def cases():
    done = subprocess.run(command("roce", "--names"), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=120, check=False)
    names = [line[len(MARK):] for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not names:
        raise harness.Failure(f"pyverbs lists no tests:\n{done.stdout}{done.stderr}")
    return [f"{device}/{name}" for device in DEVICES for name in names]


def quick(name):
    return name.startswith(QUICK) or name.endswith(QUICK_CM)


def run(names, seconds, report):
    done = []
    for device in DEVICES:
        mine = [name for name in names if name.startswith(f"{device}/")]

        def start(left, device=device):
            return command(device, *(name.partition("/")[2] for name in left)), dict(os.environ)

        def read(line, device=device):
            if not line.startswith(MARK):
                return None
            said = json.loads(line[len(MARK):])
            return child.Told(f"{device}/{said['name']}", said["verdict"], said["detail"])

        done += child.run_cases(mine, start, read, CASE_LIMIT_S, seconds, report)
    return done
