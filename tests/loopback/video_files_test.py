#!/usr/bin/env python3
"""Films as files: what weft-video makes, converts and serves.

    video_files_test.py WEFT_VIDEO CASE...     without cases: all

Of the environment: WEFT_TEST_FAILING_FSYNC, failing_fsync.c as a library. A case is left out without it.
"""

import os
import resource
import signal
import subprocess
import sys

from serving import Serving, run_cases
from video_setting import LIMIT_S, PROGRAM, Server, make, show, wait_for

FAILS_AT_CLOSE = os.environ.get("WEFT_TEST_FAILING_FSYNC")


def case_a_film_that_is_not_made(tmp):
    """Its name has the film of before, or is free; a link stays, and a pipe is written to."""
    film = make(tmp, "film.y4m", frames=3)
    before = film.read_bytes()
    link = tmp / "link.y4m"
    link.symlink_to(film)

    def no_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
    for name in (film, link, tmp / "new.y4m"):
        failed = subprocess.run([PROGRAM, "make", str(name), "--frames", "10"], capture_output=True, text=True,
                                timeout=LIMIT_S, check=False, preexec_fn=no_room)
        assert failed.returncode == 1 and "File too large" in failed.stderr, failed
    for how in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        maker = subprocess.Popen([PROGRAM, "make", str(film), "--frames", "1000000"], stderr=subprocess.PIPE, text=True)
        wait_for(lambda: any(p.stat().st_size > 10000000 for p in tmp.iterdir()), "nothing is written")
        maker.send_signal(how)
        error = maker.communicate(timeout=LIMIT_S)[1]
        assert maker.returncode == 128 + how and film.name in error, (maker.returncode, error)
    assert sorted(p.name for p in tmp.iterdir()) == [film.name, link.name] and film.read_bytes() == before
    film.chmod(0o640)
    make(tmp, link.name, frames=2)
    assert link.is_symlink() and len(film.read_bytes()) < len(before) and film.stat().st_mode & 0o777 == 0o640
    (tmp / "dangling.y4m").symlink_to("later.y4m")
    make(tmp, "dangling.y4m", frames=2)
    assert (tmp / "dangling.y4m").is_symlink() and (tmp / "later.y4m").read_bytes() == film.read_bytes()
    os.mkfifo(tmp / "pipe.y4m")
    reader = subprocess.Popen(["cat", tmp / "pipe.y4m"], stdout=subprocess.PIPE)
    make(tmp, "pipe.y4m", frames=2)
    assert reader.communicate(timeout=LIMIT_S)[0] == film.read_bytes()


def case_a_disk_that_refuses_at_the_close(tmp):
    """As NFS does, of a full disk: what is written there is not whole."""
    film = make(tmp, "film.bgra", frames=3)
    before = film.read_bytes()
    full = {**os.environ, "LD_PRELOAD": FAILS_AT_CLOSE, "WEFT_TEST_CLOSE_FAILS": "1"}
    with Server(film) as server:
        for command in (["make", str(film), "--frames", "2"],
                        ["show", "--headless", "--fast", "--dump", str(tmp / "dump"), server.url(film.name)]):
            done = subprocess.run([PROGRAM, *command], env=full, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            assert done.returncode == 1 and "No space left on device" in done.stderr, (command, done)
    assert film.read_bytes() == before and sorted(os.listdir(tmp)) == ["dump0", film.name]


def case_sizes_and_rates(tmp):
    """What one kind of film has room for is not what the other has; and the reason is the true one."""
    make(tmp, "large.y4m", size="8192x2050", frames=1)
    for name, size, rate, text in (("large.bgra", "8192x2050", "35", "67174400 octets; at most 64 MiB"),
                                   ("wide.y4m", "9000x10", "35", "frames have 9000 x 10 pixels"),
                                   ("wide.9000x10@35.bgra", "64x64", "35", "frames have 9000 x 10 pixels"),
                                   ("quick.y4m", "64x64", "2000", "the rate is 2000/1 frames/s"),
                                   ("none.y4m", "64", "35", "is no size and rate"),
                                   ("none.bgra", "64x64", "fast", "is no size and rate"),
                                   ("film.mp4", "64x64", "35", "end the name in .y4m or .bgra")):
        done = subprocess.run([PROGRAM, "make", str(tmp / name), "--size", size, "--rate", rate], capture_output=True,
                              text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 2 and text in done.stderr, (name, size, rate, done)
    assert os.listdir(tmp) == ["large.y4m"]
    wide = tmp / "wide.9000x10@35.bgra"
    wide.write_bytes(bytes(360000))
    refused(wide, text="frames have 9000 x 10 pixels")


def case_a_film_that_was_cut(tmp):
    """A part of a frame is left over: the viewer says so, and to --check it is no film of make."""
    whole, cut, raw = make(tmp, "whole.y4m", frames=9), make(tmp, "cut.y4m", frames=9), make(tmp, "raw.bgra", frames=9)
    os.truncate(cut, cut.stat().st_size - 1)
    os.truncate(raw, 8 * 160 * 120 * 4 + 1)
    with Server(whole, cut, raw) as server:
        show("--fast", "--check", server.url(whole.name), text="")
        for film in (cut, raw):
            text = f"{film.name}: the file ends within a frame: "
            for options, code in (([], 0), (["--check"], 1)):
                played = show("--fast", *options, server.url(whole.name), server.url(film.name), code=code, text=text)
                assert [f["shown"] for f in played] == [9, 8], played


def case_other_formats_by_ffmpeg(tmp):
    """Whatever ffmpeg makes of a file is served; here its place is taken by a script."""
    film = make(tmp, "film.y4m")
    (tmp / "clip.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    programs = tmp / "programs"
    programs.mkdir()
    (programs / "ffmpeg").write_text(f'#!/bin/sh\nfor last; do :; done\ncp "{film}" "${{last#file:}}"\n')
    (programs / "ffmpeg").chmod(0o755)
    with Server(tmp / "clip.mp4", path=f"{programs}:{os.environ['PATH']}") as server:
        assert show("--check", "--fast", server.url("clip.mp4.y4m"))[0]["shown"] == 60
    alone = subprocess.run([PROGRAM, "serve", str(tmp / "clip.mp4"), "--port", "0"], env={"PATH": str(tmp)},
                           capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert alone.returncode == 1 and "ffmpeg" in alone.stderr, alone.stderr


def fake_ffmpeg(tmp, script):
    programs = tmp / "programs"
    programs.mkdir()
    (programs / "ffmpeg").write_text("#!/bin/sh\n" + script)
    (programs / "ffmpeg").chmod(0o755)
    (tmp / "clip.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    (tmp / "temporary").mkdir()
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(tmp / "temporary")}


def case_converts_where_the_ends_of_children_are_ignored(tmp):
    """As some programs leave it to those that they start."""
    environment = fake_ffmpeg(tmp, "sleep 0.1\nexit 1\n")
    done = subprocess.run([PROGRAM, "serve", str(tmp / "clip.mp4"), "--port", "0"], env=environment, capture_output=True,
                          text=True, timeout=LIMIT_S, check=False,
                          preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert done.returncode == 1 and "ffmpeg could not convert it" in done.stderr, done


def case_ended_while_it_converts(tmp):
    """Neither ffmpeg nor the folder for what it makes is left behind."""
    environment = fake_ffmpeg(tmp, f'echo $$ > "{tmp}/pid.part"; mv "{tmp}/pid.part" "{tmp}/pid"; exec sleep 1000\n')
    for how in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        server = subprocess.Popen([PROGRAM, "serve", str(tmp / "clip.mp4"), "--port", "0"], env=environment,
                                  stderr=subprocess.PIPE, text=True)
        wait_for((tmp / "pid").exists, "ffmpeg was not started")
        assert len(os.listdir(tmp / "temporary")) == 1
        server.send_signal(how)
        error = server.communicate(timeout=LIMIT_S)[1]
        assert "interrupted" in error, error
        assert os.listdir(tmp / "temporary") == []
        assert not os.path.exists("/proc/" + (tmp / "pid").read_text().strip())
        (tmp / "pid").unlink()


def case_ended_while_it_serves_what_was_converted(tmp):
    film = make(tmp, "film.y4m")
    environment = fake_ffmpeg(tmp, f'for last; do :; done\ncp "{film}" "${{last#file:}}"\n')
    for how in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with Serving(PROGRAM, tmp / "clip.mp4", limit_s=LIMIT_S, env=environment) as server:
            assert len(os.listdir(tmp / "temporary")) == 1
            assert "clients" in server.stop(how)
        assert os.listdir(tmp / "temporary") == []


def refused(*files, text, **more):
    done = subprocess.run([PROGRAM, "serve", *map(str, files), "--port", "0"], capture_output=True, text=True,
                          timeout=LIMIT_S, check=False, **more)
    assert done.returncode == 1 and text in done.stderr, done


def case_what_cannot_be_served(tmp):
    """Nobody writes to the pipe, and the server does not wait for somebody."""
    for name in ("pipe", "pipe.y4m"):
        os.mkfifo(tmp / name)
        refused(tmp / name, text="no regular file")
    refused(tmp, text="no regular file")


def case_films_of_one_name(tmp):
    """Nothing is converted for nothing, and the name that is said is the user's."""
    environment = fake_ffmpeg(tmp, f'touch "{tmp}/converted"; exit 1\n')
    other = tmp / "other"
    other.mkdir()
    (other / "clip.mp4").write_bytes(b"another one")
    make(other, "clip.mp4.y4m", frames=2)
    for names in ((tmp / "clip.mp4", other / "clip.mp4"), (tmp / "clip.mp4", other / "clip.mp4.y4m"),
                  (other / "clip.mp4.y4m", tmp / "clip.mp4"), (other / "clip.mp4.y4m", other / "clip.mp4.y4m")):
        refused(*names, text=f"cannot serve {names[1]}: two files would be called 'clip.mp4.y4m'", env=environment)
    assert not (tmp / "converted").exists()


def case_links_to_films(tmp):
    """A film that is named by a link, in another folder, with a link to the folder on the way."""
    folder = tmp / "films"
    folder.mkdir()
    film = make(folder, "one.y4m")
    (tmp / "elsewhere").symlink_to(folder)
    (tmp / "link.y4m").symlink_to(tmp / "elsewhere" / film.name)
    (tmp / "second.y4m").symlink_to("link.y4m")
    with Server(tmp / "link.y4m", tmp / "second.y4m", tmp / "elsewhere" / "one.y4m") as server:
        for name in ("link.y4m", "second.y4m", "one.y4m"):
            assert show("--check", "--fast", server.url(name))[0]["shown"] == 60
    broken = tmp / "broken.y4m"
    broken.symlink_to("nowhere")
    refused(broken, text="No such file")


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def main():
    chosen = sys.argv[2:] or list(CASES)
    if not FAILS_AT_CLOSE and "a_disk_that_refuses_at_the_close" in chosen:
        print("a_disk_that_refuses_at_the_close: left out, it needs a library")
        chosen.remove("a_disk_that_refuses_at_the_close")
    run_cases(CASES, chosen, "weft-video-")


if __name__ == "__main__":
    main()
