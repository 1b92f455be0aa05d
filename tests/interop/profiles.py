#!/usr/bin/env python3
"""The profiles of `weft run --like siw` and rxe are what those devices say today, in the guest.

profiles.py --weft WEFT: exit status 0 they are, 1 not, 77 no guest.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "vm"))
from vm import Skip, Vm  # noqa: E402

ORIGIN = {"kernel", "device", "firmware", "vendor", "driver", "source", "date"}
LIMIT_S = 120
# rdma_cm gives one address to one device, so each has the adapter for itself.
DEVICES = {
    "siw": "true",
    "rxe": "rdma link delete siw0 && rdma link add rxe0 type rxe netdev eth0",
}


def profile(text):
    lines = (line.split("#")[0].partition("=") for line in text.splitlines())
    found = {key.strip(): value.strip() for key, _, value in lines if key.strip()}
    return {key: value for key, value in found.items() if key not in ORIGIN}


def differences(vm, probe, weft, name, before):
    known = subprocess.run([weft, "probe", "--known", name], capture_output=True, text=True,
                           check=True, timeout=LIMIT_S).stdout
    want = profile(known)
    found = profile(vm.check(f"{before} && {probe} {name}0", timeout=LIMIT_S))
    return [f"{name}: {key} is {found.get(key)}, and the profile has {want.get(key)}"
            for key in sorted(want.keys() | found.keys()) if want.get(key) != found.get(key)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weft", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            vm = Vm.boot(pathlib.Path(folder))
        except Skip as reason:
            print(f"skipped: {reason}")
            return 77
        try:
            probe = vm.put(pathlib.Path(args.weft).with_name("weft-probe"))
            wrong = [line for name, before in DEVICES.items()
                     for line in differences(vm, probe, args.weft, name, before)]
        finally:
            vm.stop()
    print("\n".join(wrong) or "siw and rxe are as their profiles")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
