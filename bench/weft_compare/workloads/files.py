"""The data server: a large file and a tree of small ones, beside nginx and rsync."""

import shutil

from ..figure import Section, build
from ..plan import BOTH, Cell, Job, point
from ..rivals import files

NAME = "files"
NUMBER = 11
TITLE = "Data server"
NEEDS = ()
ABOUT = """`weft serve` and `weft get` over TCP with CRC as shipped, and over a ring of shared memory,
on this machine. Files are in the page cache. A large file goes to /dev/null: beside it nginx with
sendfile, one process, and curl; into a file: beside it cp; and to a reader who takes 100 MB/s, for
the CPU of the server alone. A program reads it through a mounted folder: beside it bindfs, which
passes calls on to the folder itself. A tree of files of 4 KiB is written to disk: beside it the
daemon of rsync. Rates are those of whole runs, with the start of the clients; CPU seconds are those
of the processes, with their start. 16 clients share two CPUs with the server where the machine has two."""

LARGE, LARGE_QUICK = 2**30, 2**26
TREE, TREE_QUICK = 10000, 500
SMALL = 4096
CLIENTS = (1, 16)

LARGE_KINDS = {
    "files-tcp": lambda b, served: lambda folder: files.Weft(b, served, folder, "tcp"),
    "files-ring": lambda b, served: lambda folder: files.Weft(b, served, folder, "auto"),
    "files-nginx": lambda b, served: lambda folder: files.Nginx(b, served, folder),
}
INTO_KINDS = {
    "files-tcp": LARGE_KINDS["files-tcp"],
    "files-ring": LARGE_KINDS["files-ring"],
    "files-cp": lambda b, served: lambda folder: files.Local(b, served, folder),
}
MOUNT_KINDS = {
    "files-tcp": LARGE_KINDS["files-tcp"],
    "files-ring": LARGE_KINDS["files-ring"],
    "files-bindfs": INTO_KINDS["files-cp"],
}
TREE_KINDS = {
    "files-tcp": LARGE_KINDS["files-tcp"],
    "files-ring": LARGE_KINDS["files-ring"],
    "files-rsync": lambda b, served: lambda folder: files.Rsync(b, served, folder),
}


def cell(kind, what, clients):
    return Cell(NAME, kind, BOTH, point(what=what, clients=clients))


def _measure(bench, kinds, what, clients, count, size):
    """Each kind once, over the same files."""
    folder = files.served(count, size)

    def command(server, to):
        return {"large": lambda: server.get("file0"), "into": lambda: server.get_into("file0", to),
                "paced": lambda: server.get_paced("file0"),
                "tree": lambda: server.get_tree(to)}[what]()
    try:
        if what == "mount":
            return {cell(kind, what, clients): files.measure_mount(bench, make(bench, folder),
                                                                   "file0", size)
                    for kind, make in kinds.items()}
        return {cell(kind, what, clients): files.measure(bench, command, make(bench, folder),
                                                         clients, count * size, what == "into")
                for kind, make in kinds.items()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def jobs(bench):
    quick = bench.settings.quick
    large, tree = (LARGE_QUICK, TREE_QUICK) if quick else (LARGE, TREE)
    for what, kinds, count, size, most in (("large", LARGE_KINDS, 1, large, 16),
                                           ("into", INTO_KINDS, 1, large, 1),
                                           ("paced", LARGE_KINDS, 1, large // 4, 1),
                                           ("mount", MOUNT_KINDS, 1, large, 1),
                                           ("tree", TREE_KINDS, tree, SMALL, 16)):
        for clients in CLIENTS[:1] if quick or most == 1 else CLIENTS:
            yield Job(f"{NAME}|{what}|{clients}", tuple(cell(k, what, clients) for k in kinds),
                      2.0 if quick else 10.0 * clients ** 0.5,
                      lambda b, k=kinds, w=what, n=clients, c=count, s=size:
                      _measure(b, k, w, n, c, s), max_rounds=3)


def section(store):
    figures = []
    for what, metric, title, unit, scale, lower in (
            ("into", "bytes_per_s", "A large file into a file: rate", "GB/s", 1e9, False),
            ("paced", "server_cpu_percent", "A reader who takes 100 MB/s: CPU of the server",
             "% of a core", 1, True),
            ("mount", "bytes_per_s", "A large file through a mounted folder: rate", "GB/s", 1e9,
             False)):
        figures.append(build(store, NAME, metric, title, unit, "clients", fixed={"what": what},
                             scale=scale, lower_is_better=lower, x_title="clients"))
    for what, title in (("large", "A large file"), ("tree", "A tree of small files")):
        fixed = {"what": what}
        for metric, name, unit, scale, lower in (
                ("bytes_per_s", "rate", "GB/s", 1e9, False),
                ("server_cpu_s_per_gb", "CPU seconds of the server per GB", "s/GB", 1, True),
                ("client_cpu_s_per_gb", "CPU seconds of the clients per GB", "s/GB", 1, True)):
            figures.append(build(store, NAME, metric, f"{title}: {name}", unit, "clients",
                                 fixed=fixed, scale=scale, lower_is_better=lower,
                                 x_title="clients"))
    return Section(NAME, NUMBER, TITLE, ABOUT, figures)
