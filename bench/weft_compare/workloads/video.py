"""Remote video: films at once, by the clock, and what they cost."""

import json
import shutil
import tempfile

from ..bench import free_port
from ..figure import Section, build
from ..plan import BOTH, Cell, Job, point
from ..process import Failed

NAME = "video"
NUMBER = 12
TITLE = "Remote video"
NEEDS = ()
ABOUT = """`weft video serve` and `weft video show --headless` on this machine: films of 1280x720
pixels of 32 bits at 35 frames a second (129 MB/s each), from the page cache, by the clock, with 8
buffers each. Frames that come too late are left out and counted. CPU seconds are those of all of
the server and all of the viewer, which shows nothing: frames are in its memory when it gets them.
"""

SIZE, RATE = "1280x720", 35
SECONDS, SECONDS_QUICK = 6, 1
FILMS, FILMS_QUICK = (1, 2, 4), (1,)
KINDS = {"files-tcp": "tcp", "files-ring": "auto"}


def cell(kind, films):
    return Cell(NAME, kind, BOTH, point(films=films))


def _show(bench, folder, path, films, frames):
    place, env, port = bench.anywhere(), {"WEFT_PATH": path}, free_port()
    name = f"film.{SIZE}@{RATE}.bgra"
    argv = [bench.weft, "video", "serve", f"{folder}/{name}", "--quiet", "--listen", "127.0.0.1",
            "--port", str(port)]
    with bench.server(place, argv, env) as server:
        server.wait_until_listening(port)
        ended = bench.client(place, [bench.weft, "video", "show", "--headless", "--json", "--loop",
                                     "--buffers", "8", "--frames", str(frames),
                                     *[f"weft://127.0.0.1:{port}/{name}"] * films],
                             60 + frames / RATE, env)
        cpu_s = server.stop().cpu_s
    try:
        shown = json.loads(ended.out)["films"]
    except (ValueError, KeyError) as error:
        raise Failed(f"weft video printed no results ({error})") from None
    gb = sum(f["bytes"] for f in shown) / 1e9
    return {"frames_per_s": sum(f["frames_per_second"] for f in shown) / films,
            "lost": sum(f["dropped"] for f in shown) / (films * frames),
            "late": sum(f["late"] for f in shown) / (films * frames),
            "server_cpu_s_per_gb": cpu_s / gb, "client_cpu_s_per_gb": ended.cpu_s / gb}


def _measure(bench, films, seconds):
    folder = tempfile.mkdtemp(prefix="weft-compare-")
    try:
        bench.client(bench.anywhere(), [bench.weft, "video", "make", f"{folder}/film.bgra",
                                        "--size", SIZE, "--rate", str(RATE), "--frames", "70"])
        return {cell(kind, films): _show(bench, folder, path, films, seconds * RATE)
                for kind, path in KINDS.items()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def jobs(bench):
    quick = bench.settings.quick
    seconds = SECONDS_QUICK if quick else SECONDS
    for films in FILMS_QUICK if quick else FILMS:
        yield Job(f"{NAME}|{films}", tuple(cell(k, films) for k in KINDS),
                  len(KINDS) * (seconds + 1.0), lambda b, n=films: _measure(b, n, seconds),
                  max_rounds=3)


def section(store):
    def figure(metric, title, unit, scale=1, lower=True):
        return build(store, NAME, metric, title, unit, "films", scale=scale,
                     lower_is_better=lower, x_title="films at once")
    return Section(NAME, NUMBER, TITLE, ABOUT, [
        figure("frames_per_s", "Frames a second, each film", "1/s", lower=False),
        figure("lost", "Frames lost", "%", 0.01),
        figure("late", "Frames shown late", "%", 0.01),
        figure("server_cpu_s_per_gb", "CPU seconds of the server per GB", "s/GB"),
        figure("client_cpu_s_per_gb", "CPU seconds of the viewer per GB", "s/GB"),
    ])
