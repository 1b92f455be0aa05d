#!/usr/bin/env python3
"""A board under QEMU with Weft over lwIP, and Linux siw in the guest, joined by a cable.

    board.py --build FOLDER --peer board_peer [--board BOARD]...

The guest has a second adapter, whose frames go to the board through the relay of
tests/boards/board_test.py. board_peer runs in the guest, over siw; the board runs the image of
tests/boards. Exit status 77: something that is needed is not there, and a line says what.
"""

import argparse
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/interop/vm"), str(ROOT / "tests/boards")]

import board_test  # noqa: E402
from vm import Skip, Vm  # noqa: E402
from vm_job import VmError  # noqa: E402

GUEST = "10.77.0.1"  # where the board connects to
BOARD = "10.77.0.2"
LIMIT_S = 120


def board_image(board, build):
    """Path of the image; None and a line that says why."""
    qemu = board_test.QEMU[board][0]
    if shutil.which(qemu) is None:
        print(f"{board} is left out: {qemu} is not installed (scripts/install-deps.sh all)")
        return None
    done = subprocess.run([ROOT / "scripts/build-board.sh", board, build / board], check=False)
    if done.returncode == 77:
        return None
    done.check_returncode()
    return str(build / board / "bin/weft-board.elf")


class Cable:
    """Carries frames between the guest's adapter and the board's relay."""

    def __init__(self):
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (self.ours, self.theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.ours.setblocking(False)


def attach(vm, boards):
    mtu = min(board_test.MTU[board] for board in boards)
    vm.check(f"ip link set eth1 mtu {mtu} up && ip addr add {GUEST}/24 dev eth1 && "
             "rdma link add siw1 type siw netdev eth1")


def every_octet(vm, board, peer, how):
    """Runs board_peer in the guest: `-c BOARD` or `-s GUEST`."""
    done = vm.run(f"{peer} {how}", LIMIT_S)
    board.check()
    if done.rc != 0 or "every octet is right" not in done.out:
        raise board_test.Failed(f"board_peer {how}: {done}\nconsole: {board.lines}\n{vm.trouble()}")


def cases(vm, board, peer):
    # The agent does without CRC if its peer does. As server siw does as the Request says, so there
    # is no CRC when the board connects.
    for name, crc, how in (("the board connects", 0, f"-s {GUEST}"),
                           ("the board listens, CRC off", 0, f"-c {BOARD}"),
                           ("the board listens, CRC on", 1, f"-c {BOARD}")):
        vm.siw(mpa_crc_required=crc)
        every_octet(vm, board, peer, how)
        print(f"{name}: every octet is right", flush=True)
    relay = board.relay
    relay.loss, relay.double, relay.reorder = 0.02, 0.02, 0.1
    every_octet(vm, board, peer, f"-c {BOARD}")
    print("lost, doubled and reordered frames: every octet is right", flush=True)


def run(args):
    images = {board: board_image(board, args.build) for board in args.board or board_test.QEMU}
    images = {board: image for board, image in images.items() if image is not None}
    if not images:
        raise Skip("no board can be had, see above")
    cable = Cable()
    with tempfile.TemporaryDirectory() as state, \
            Vm.boot(pathlib.Path(state), net="user", cable=cable.theirs.fileno()) as vm:
        attach(vm, images)
        peer = vm.put(args.peer)
        for name, image in images.items():
            print(name, flush=True)
            board = board_test.Board(name, image, cable.ours.fileno(), 1, may_rest=False)
            try:
                board.wait_ready()
                cases(vm, board, peer)
            finally:
                board.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="where images are built")
    parser.add_argument("--peer", type=pathlib.Path, required=True, help="the program board_peer")
    parser.add_argument("--board", action="append", choices=sorted(board_test.QEMU),
                        help="only this board; again for several (default: all)")
    args = parser.parse_args()
    try:
        run(args)
    except (Skip, board_test.Skip) as reason:
        print(f"skipped: {reason}")
        return 77
    except (VmError, board_test.Failed) as reason:
        print(f"FAILED: {reason}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
