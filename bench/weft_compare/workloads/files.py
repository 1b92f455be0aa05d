"""The data server: a large file and a tree of small ones, beside nginx, rsync and others."""

import shutil

from ..figure import Section, build
from ..plan import BOTH, Cell, Job, point
from ..process import Failed
from ..rivals import files

NAME = "files"
NUMBER = 11
TITLE = "Data server"
NEEDS = ()
ABOUT = """`weft serve` and `weft get` over TCP with CRC as shipped, and over a ring of shared memory,
on this machine. Files are in the page cache. A large file goes to /dev/null: beside it nginx with
sendfile, one process, and curl, and a plain server that reads 256 KiB and sends them; into a file:
beside it cp; into a file between two network namespaces: beside it nc; and to a reader who takes
100 MB/s, for the CPU of the server alone. Past the page cache (--direct) it goes to /dev/null:
beside it fio with O_DIRECT. A program reads it through a mounted folder: beside it bindfs, which
passes calls on to the folder itself. A tree of files of 4 KiB is written to disk: beside it the
daemon of rsync; and a large tree of small files is compared with one that is the same. Rates are
those of whole runs, with the start of the clients; CPU seconds are those of the processes, with
their start. 16 clients share two CPUs with the server where the machine has two."""

LARGE, LARGE_QUICK = 2**30, 2**26
TREE, TREE_QUICK = 10000, 500
SAME_TREE, SAME_TREE_QUICK = 100000, 2000
SMALL = 4096
CLIENTS = (1, 16)



def _weft(path, *options):
    return lambda bench, served, _: files.Weft(bench, served, path, options=options)


def _between(bench):
    return bench.veth(1500, BOTH, False)


WEFT = {"files-tcp": _weft("tcp"), "files-ring": _weft("auto")}
NGINX = {"files-nginx": files.Nginx}
RSYNC = {"files-rsync": files.Rsync}
# What is measured -> who, of (bench, the folder that is served, a folder of its own).
KINDS = {
    "large": WEFT | {"files-plain": lambda bench, served, _: files.Plain(served)} | NGINX,
    "into": WEFT | {"files-cp": files.Local},
    "between": {
        "files-tcp": lambda bench, served, _: files.Weft(bench, served, "tcp", _between(bench)),
        "files-nc": lambda bench, served, _: files.Netcat(served, _between(bench))},
    "paced": WEFT | NGINX,
    "direct": {"files-tcp": _weft("tcp", "--direct"), "files-ring": _weft("auto", "--direct"),
               "files-fio": lambda bench, served, _: files.Fio(served)},
    "mount": WEFT | {"files-bindfs": files.Local},
    "tree": WEFT | RSYNC,
    "same": WEFT | RSYNC,
}


def cell(kind, what, clients):
    return Cell(NAME, kind, BOTH, point(what=what, clients=clients))


def _measure_one(bench, make, what, clients, served, octets):
    def command(server, to):
        return {"large": lambda: server.get("file0"), "direct": lambda: server.get("file0"),
                "into": lambda: server.get_into("file0", to),
                "between": lambda: server.get_into("file0", to),
                "paced": lambda: server.get_paced("file0"), "tree": lambda: server.get_tree(to),
                "same": lambda: server.sync(to)}[what]()

    def of(folder):
        return make(bench, served, folder)
    try:
        if what == "mount":
            return files.measure_mount(bench, of, "file0", octets)
        return files.measure(bench, command, of, clients, octets, what in ("into", "between"),
                             _between(bench) if what == "between" else None, what == "same")
    except Failed as why:
        return {"error": str(why)}


def _measure(bench, what, clients, count, size):
    """Each kind once, over the same files."""
    folder = files.served(count, size)
    try:
        return {cell(kind, what, clients): _measure_one(bench, make, what, clients, folder,
                                                        count * size)
                for kind, make in KINDS[what].items()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def jobs(bench):
    quick = bench.settings.quick
    large, tree, same = (LARGE_QUICK, TREE_QUICK, SAME_TREE_QUICK) if quick else \
        (LARGE, TREE, SAME_TREE)
    for what, count, size, most in (("large", 1, large, 16), ("into", 1, large, 1),
                                    ("between", 1, large, 1), ("paced", 1, large // 4, 1),
                                    ("direct", 1, large, 1), ("mount", 1, large, 1),
                                    ("tree", tree, SMALL, 16), ("same", same, 16, 1)):
        for clients in CLIENTS[:1] if quick or most == 1 else CLIENTS:
            yield Job(f"{NAME}|{what}|{clients}",
                      tuple(cell(kind, what, clients) for kind in KINDS[what]),
                      2.0 if quick else 10.0 * clients ** 0.5,
                      lambda b, w=what, n=clients, c=count, s=size: _measure(b, w, n, c, s),
                      max_rounds=3)


def section(store):
    figures = []
    for what, metric, title, unit, scale, lower in (
            ("into", "bytes_per_s", "A large file into a file: rate", "GB/s", 1e9, False),
            ("between", "bytes_per_s", "Into a file, between two namespaces: rate", "GB/s", 1e9, False),
            ("direct", "bytes_per_s", "A large file past the page cache: rate", "GB/s", 1e9, False),
            ("same", "seconds", "A tree of small files that is there already: time", "s", 1, True),
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
