#!/usr/bin/env python3
"""Films, as users see them: weft-video show.

    video_test.py WEFT_VIDEO HAS_WINDOW CASE...     without cases: all
"""

import json
import os
import pathlib
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time

from video_setting import LIMIT_S, PROGRAM, Server, make, show, wait_for, wait_for_a_frame

import raw_data  # video_setting knows where what it needs is

HAS_WINDOW = sys.argv[2] == "1"


def case_every_frame_bit_for_bit(tmp):
    """Two films of two servers; every pixel of every frame, and nothing is dropped."""
    small = make(tmp, "small.y4m", size="161x119")  # chroma is rounded up
    large = make(tmp, "large.bgra", size="640x360", frames=40)
    with Server(small) as one, Server(large) as two:
        films = show("--check", "--fast", "--dump", tmp / "dump", one.url(small.name), two.url(large.name))
    assert [f["shown"] for f in films] == [60, 40] and all(f["dropped"] == 0 for f in films), films
    assert (tmp / "dump1").read_bytes() == large.read_bytes()
    frame = 161 * 119 + 2 * 81 * 60
    content = small.read_bytes()
    start = content.index(b"\n") + 1
    frames = [content[at + 6:at + 6 + frame] for at in range(start, len(content), frame + 6)]
    assert (tmp / "dump0").read_bytes() == b"".join(frames)
    # One message a frame at most, besides the first.
    assert all(f["requests"] <= f["shown"] for f in films), films


def case_a_film_that_goes_round(tmp):
    film = make(tmp, "film.bgra", frames=7)
    with Server(film) as server:
        played = show("--check", "--fast", "--loop", "--start", 3, "--frames", 50, "--buffers", 5, server.url(film.name))
        assert played[0]["shown"] == 50 and played[0]["dropped"] == 0, played
        show("--start", 7, server.url(film.name), code=1, text="the film has 7 frames")


def case_by_the_clock(tmp):
    """Frames are shown by time; a viewer that stood still leaves frames out, and goes on where it should be."""
    film = make(tmp, "film.bgra", rate="100", frames=150)
    with Server(film) as server:
        viewer = subprocess.Popen([PROGRAM, "show", "--headless", "--check", "--json", "--dump", str(tmp / "dump"),
                                   server.url(film.name)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for_a_frame(tmp / "dump0")
        viewer.send_signal(signal.SIGSTOP)
        time.sleep(0.4)  # what the test is about, not a wait for something
        viewer.send_signal(signal.SIGCONT)
        out, error = viewer.communicate(timeout=LIMIT_S)
    assert viewer.returncode == 0, error
    played = json.loads(out)["films"][0]
    assert played["dropped"] > 0 and played["shown"] + played["dropped"] == 150, played


def case_ended_by_a_signal(tmp):
    """What was not shown counts, but for a film that goes round for ever."""
    film = make(tmp, "film.bgra", frames=1000)
    with Server(film) as server:
        for how, options, code in ((signal.SIGTERM, [], 143), (signal.SIGINT, [], 130), (signal.SIGTERM, ["--loop"], 0),
                                   (signal.SIGINT, ["--loop", "--frames", "5000"], 130)):
            viewer = subprocess.Popen([PROGRAM, "show", "--headless", "--dump", str(tmp / "dump"), *options,
                                       server.url(film.name)], stderr=subprocess.PIPE, text=True)
            wait_for_a_frame(tmp / "dump0")
            viewer.send_signal(how)
            error = viewer.communicate(timeout=LIMIT_S)[1]
            assert viewer.returncode == code and "frames shown" in error, (how, options, viewer.returncode, error)
            (tmp / "dump0").unlink()


def case_output_that_cannot_be_written(tmp):
    film = make(tmp, "film.bgra", frames=3)
    with Server(film) as server:
        for command in (["show", "--headless", "--json", "--fast", server.url(film.name)],
                        ["make", str(tmp / "other.y4m"), "--frames", "2"], ["show", "--help"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([PROGRAM, *command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S,
                                      check=False)
            assert done.returncode == 1 and "the standard output" in done.stderr, (command, done)


def case_a_file_that_shrinks(tmp):
    film = make(tmp, "film.bgra", frames=200)
    other = make(tmp, "other.y4m")
    with Server(film, other) as server:
        viewer = subprocess.Popen([PROGRAM, "show", "--headless", "--loop", "--check", "--fast", "--dump",
                                   str(tmp / "dump"), server.url(film.name)], stderr=subprocess.PIPE, text=True)
        wait_for_a_frame(tmp / "dump0")
        os.truncate(film, 100 * 160 * 120 * 4 + 1000)
        error = viewer.communicate(timeout=LIMIT_S)[1]
        assert viewer.returncode == 1 and "became shorter" in error, error
        assert show("--check", "--fast", server.url(other.name))[0]["shown"] == 60


def case_a_server_that_dies(tmp):
    """One film ends with an error; the other goes on to its end."""
    film = make(tmp, "film.y4m")
    with Server(film) as one, Server(film) as two:
        viewer = subprocess.Popen([PROGRAM, "show", "--headless", "--check", "--json", "--dump", str(tmp / "dump"),
                                   one.url(film.name), two.url(film.name)],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for_a_frame(tmp / "dump0")
        one.stop(signal.SIGKILL)
        out, error = viewer.communicate(timeout=LIMIT_S)
    assert viewer.returncode == 1 and "gone" in error, error
    first, second = json.loads(out)["films"]
    assert second["shown"] + second["dropped"] == 60 > first["shown"], (first, second)


def case_a_server_that_dies_when_its_film_is_over(tmp):
    """All of it was shown, so nothing failed; and --hold goes on."""
    short, long = make(tmp, "short.bgra", frames=3), make(tmp, "long.bgra", frames=100)
    with Server(short) as one, Server(long) as two:
        viewer = subprocess.Popen([PROGRAM, "show", "--headless", "--fast", "--hold", "--dump", str(tmp / "dump"),
                                   one.url(short.name), two.url(long.name)], stderr=subprocess.PIPE, text=True)
        for server, film, dump in ((one, short, "dump0"), (two, long, "dump1")):
            wait_for(lambda: (tmp / dump).exists() and (tmp / dump).stat().st_size >= film.stat().st_size, "not all frames")
            server.stop(signal.SIGKILL)
            line = viewer.stderr.readline()
            assert film.name in line or "gone" in line, line
        viewer.terminate()
        error = viewer.communicate(timeout=LIMIT_S)[1]
    assert viewer.returncode == 0 and "3 frames shown" in error and "100 frames shown" in error, error


def case_what_is_no_film(tmp):
    (tmp / "notes.y4m").write_text("no film at all")
    (tmp / "short.y4m").write_text("YUV4MPEG2 W64 H64 F25:1 C420\nFRAME\n")
    (tmp / "deep.y4m").write_text("YUV4MPEG2 W64 H64 F25:1 C420p10\nFRAME\n")
    (tmp / "huge.y4m").write_text("YUV4MPEG2 W99999 H64 F25:1\nFRAME\n")
    odd = make(tmp, "odd.y4m", size="16x16", frames=3).read_bytes()
    # The first frame has parameters, so the second is not where it should be.
    at = odd.index(b"\n") + 1
    (tmp / "odd.y4m").write_bytes(odd[:at] + b"FRAME Ip\n" + odd[at + 6:] + b"\0" * 100)
    names = ["notes", "short", "deep", "huge", "odd"]
    data = os.path.join(os.path.dirname(PROGRAM), "weft-data")
    read, write = os.pipe()
    with subprocess.Popen([data, "serve", str(tmp), "--listen", "127.0.0.1", "--port", "0", "--announce-fd", str(write)],
                          pass_fds=[write], stderr=subprocess.DEVNULL) as server:
        os.close(write)
        with os.fdopen(read) as announced:
            port = int(announced.readline())
        try:
            wanted = ["no YUV4MPEG2", "not one whole frame", "only 420 can be shown", "8192 a side", "parameters of its own"]
            for name, text in zip(names, wanted):
                show("--fast", f"weft://127.0.0.1:{port}/{name}.y4m", code=1, text=text)
            show(f"weft://127.0.0.1:{port}/nothing.y4m", code=1, text="No such file")
        finally:
            server.terminate()


def film_server(frames, played, granted):
    """Of one film. It sends so many frames; then `played` and `granted` say how it answers PLAY and GRANT."""
    header = b"YUV4MPEG2 W16 H16 F50:1 C420\n"
    frame = b"FRAME\n" + bytes(16 * 16 * 3 // 2)

    def answer(rdma, operation, tag, body):
        if operation == raw_data.OPEN:
            return 0, struct.pack(">QI", 5, 0) + raw_data.state(stat.S_IFREG | 0o644, len(header) + 3 * len(frame))
        if operation == raw_data.READ:
            _, _, address, stag, _ = struct.unpack(">QQQII", body)
            rdma.write(stag, address, header + frame)
            return 0, struct.pack(">I", len(header + frame))
        if operation == raw_data.PLAY:
            _, _, address, stag, length, pitch = struct.unpack(">QQQIII", body[:36])
            assert length == len(frame)
            for number in range(frames):
                rdma.write(stag, address + number * pitch, frame)
                rdma.send(struct.pack(">II", number, 0), raw_data.IMMEDIATE)
            return played
        return None if operation == raw_data.CLOSE else (0, struct.pack(">Q", granted))
    return raw_data.RawServer(answer)


def case_a_film_server_that_falls_silent(tmp):
    """It sends every frame, and then never says that the film has ended: the viewer ends nevertheless."""
    with film_server(frames=3, played=None, granted=3) as server:
        done = subprocess.run([PROGRAM, "show", "--headless", "--fast", "--frames", "3", server.url("film.y4m")],
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert "does not answer" in done.stderr and "3 frames shown" in done.stderr, done
        assert raw_data.CLOSE in server.seen, server.seen


def case_a_film_server_that_lies(tmp):
    """It ends the film too early, or has started more frames than were granted: the viewer ends with an error."""
    ended = 0, struct.pack(">QQ", 3, 0)
    for frames, played, granted, text in ((2, ended, 2, "before its last frame"), (0, ended, 0, "before its last frame"),
                                          (3, None, 1 << 40, "a number that cannot be")):
        with film_server(frames, played, granted) as server:
            done = subprocess.run([PROGRAM, "show", "--headless", "--fast", "--loop", server.url("film.y4m")],
                                  capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 1 and text in done.stderr, done


class Screen:
    """Xvfb, and what it shows."""

    WIDTH, HEIGHT = 640, 480

    def __init__(self, tmp):
        self.folder = tmp / "screen"
        self.folder.mkdir()
        read, write = os.pipe()
        # -displayfd: it chooses a number that is free. -nolisten: no socket but that of the number.
        self.process = subprocess.Popen(
            ["Xvfb", "-displayfd", str(write), "-screen", "0", f"{self.WIDTH}x{self.HEIGHT}x24", "-fbdir", str(self.folder),
             "-nolisten", "tcp"], pass_fds=[write], stderr=subprocess.DEVNULL)
        os.close(write)
        with os.fdopen(read) as announced:
            self.display = ":" + announced.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(LIMIT_S)

    def row(self, x, y, pixels):
        """Octets of a part of a row: B, G, R, X each."""
        data = (self.folder / "Xvfb_screen0").read_bytes()
        head, = struct.unpack(">I", data[:4])
        stride, = struct.unpack(">I", data[48:52])
        colors, = struct.unpack(">I", data[76:80])
        at = head + colors * 12 + y * stride + x * 4
        return data[at:at + pixels * 4]


def without_x(octets):
    return bytes(b for i, b in enumerate(octets) if i % 4 != 3)


def environment_of(screen):
    return {**os.environ, "DISPLAY": screen.display, "SDL_VIDEODRIVER": "x11", "SDL_RENDER_DRIVER": "software",
            "SDL_AUDIODRIVER": "dummy"}


def case_on_a_screen(tmp):
    """What stands on the screen at the end is the last frame, pixel for pixel."""
    film = make(tmp, "film.bgra", size="320x240", frames=20)
    last = film.read_bytes()[19 * 320 * 240 * 4:]
    with Screen(tmp) as screen, Server(film) as server:
        viewer = subprocess.Popen([PROGRAM, "show", "--hold", "--json", server.url(film.name)], env=environment_of(screen),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        x, y = (screen.WIDTH - 320) // 2, (screen.HEIGHT - 240) // 2
        deadline = time.monotonic() + LIMIT_S
        while True:
            wrong = [row for row in range(240) if without_x(screen.row(x, y + row, 320)) !=
                     without_x(last[row * 1280:(row + 1) * 1280])]
            if not wrong:
                break
            assert viewer.poll() is None, viewer.communicate()[1]
            assert time.monotonic() < deadline, f"rows {wrong[:5]} of {len(wrong)} differ"
        viewer.terminate()
        out, error = viewer.communicate(timeout=LIMIT_S)
        assert viewer.returncode == 0, error
        assert json.loads(out)["films"][0]["shown"] >= 1


def case_four_films_that_move(tmp):
    """Four films at once, nothing lost, and moving them costs no message."""
    films = [make(tmp, f"film{i}.bgra", size="160x120", frames=100) for i in range(4)]
    with Screen(tmp) as screen, Server(*films) as server:
        done = subprocess.run([PROGRAM, "show", "--fast", "--roam", "--loop", "--frames", "400", "--json",
                               *(server.url(f.name) for f in films)], env=environment_of(screen), check=False,
                              capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr
        stats = json.loads(done.stdout)
    # A film that is done waits for the others, whose grants go on.
    assert all(f["shown"] == 400 and f["dropped"] == 0 for f in stats["films"]), stats
    assert all(f["requests"] <= f["shown"] for f in stats["films"]), stats
    assert stats["moves"] > 0, stats


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}
ON_SCREEN = {"on_a_screen", "four_films_that_move"}


def main():
    chosen = sys.argv[3:] or list(CASES)
    left_out = 0
    for name in chosen:
        if name in ON_SCREEN and not (HAS_WINDOW and shutil.which("Xvfb")):
            print(f"{name}: left out, it needs SDL2 and Xvfb")
            left_out += 1
            continue
        tmp = pathlib.Path(tempfile.mkdtemp(prefix="weft-video-"))
        start = time.monotonic()
        try:
            CASES[name](tmp)
        finally:
            shutil.rmtree(tmp, ignore_errors=True)
        print(f"{name}: passed in {time.monotonic() - start:.1f} s", flush=True)
    print(f"{len(chosen) - left_out} passed, 0 failed")


if __name__ == "__main__":
    main()
