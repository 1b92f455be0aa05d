#!/usr/bin/env python3
"""What a data server tells of itself: weft serve --status, and its last line.

    data_status_test.py WEFT_DATA CASE...     without cases: all
"""

import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from data_setting import PROGRAM, Server, run  # noqa: E402
from raw_data import RawClient  # noqa: E402
from serving import run_cases  # noqa: E402

NOBODY = 65534


def served_folder(tmp):
    served = tmp / "served"
    served.mkdir()
    (served / "file").write_bytes(b"content")
    return served


def status_of(port):
    lines = run("serve", "--status", "--port", port).decode().splitlines()
    return dict(line.split(": ", 1) for line in lines if not line.startswith("client ")), [
        line for line in lines if line.startswith("client ")]


def case_how_a_server_is(tmp):
    with Server(served_folder(tmp), "--writable", "--max-clients", 7) as server:
        before, clients = status_of(server.port)
        assert before["port"] == str(server.port) and before["protocol version"] == "2", before
        assert before["writable"] == "yes" and before["token"] == "none", before
        assert before["clients now"] == "0 of at most 7, and 0 not ready" and not clients, before
        with RawClient(server.port) as client, RawClient(server.port):
            assert client.hello()[0] == 0
            handle = client.open("file")
            assert handle
            now, clients = status_of(server.port)
            assert now["clients now"] == "1 of at most 7, and 1 not ready", now
            assert now["so far"].startswith("2 clients, 0 refused"), now
            ready, = (line for line in clients if ": ready, " in line)
            assert len(clients) == 2 and "1 open files" in ready, clients
            name = client.link.getsockname()[1]
            assert ready.startswith(f"client 127.0.0.1 port {name}: "), (ready, name)


def case_no_server_there(tmp):
    server = Server(served_folder(tmp))
    server.stop()
    run("serve", "--status", "--port", server.port, code=1, text="no server of this machine is there")
    run("serve", code=2, text="FOLDER is required")


def case_status_is_for_the_server_s_user(tmp):
    if os.geteuid() != 0:
        return print("status_is_for_the_server_s_user: needs root; left out")
    with Server(served_folder(tmp)) as server:
        done = subprocess.run([PROGRAM, "serve", "--status", "--port", str(server.port)], user=NOBODY,
                              capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and not done.stdout and "another user" in done.stderr, done


def case_a_name_that_is_taken(tmp):
    """The server serves all the same."""
    served = served_folder(tmp)
    with Server(served) as first:
        port = first.port
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(f"\0weft-serve-{port}")
        with Server(served, port=port) as server:
            assert run("cat", server.url("file")) == b"content"
        assert "has no name to ask at" in server.log, server.log


def case_callers_that_do_not_read(tmp):
    """They make nobody wait."""
    with Server(served_folder(tmp)) as server:
        callers = [socket.socket(socket.AF_UNIX) for _ in range(100)]
        for caller in callers:
            caller.connect(f"\0weft-serve-{server.port}")
        assert run("cat", server.url("file")) == b"content"
        assert status_of(server.port)[0]["port"] == str(server.port)
        for caller in callers:
            caller.close()


def write_token(path, token, mode=0o600):
    """In one step, as a careful owner does."""
    new = path.with_suffix(".new")
    new.write_text(token)
    new.chmod(mode)
    new.replace(path)


def case_a_token_that_is_read_again(tmp):
    """New connections need the new token. One that cannot be read, or that others can read, changes nothing."""
    served, token, old = served_folder(tmp), tmp / "token", tmp / "old"
    write_token(token, "a secret of the first day")
    write_token(old, "a secret of the first day")
    with Server(served, "--token-file", token) as server:
        def reload(says):
            server.process.send_signal(signal.SIGUSR1)
            while True:
                line = server.process.stderr.readline()
                assert line, "the server has ended"
                if says in line:
                    break

        def get(key, **expected):
            run("get", "--token-file", key, server.url("file"), tmp / "copy", **expected)
        get(token)
        write_token(token, "a secret of the next day", 0o644)
        reload("the token stays as it was")
        get(old)
        write_token(token, "a secret of the next day")
        get(token, code=1, text="another token")
        reload("the token was read again")
        get(token)
        get(old, code=1, text="another token")
        token.unlink()
        reload("the token stays as it was")
        write_token(token, "a secret of the next day")
        get(token)
    with Server(served) as server:
        server.process.send_signal(signal.SIGUSR1)
        assert run("cat", server.url("file")) == b"content"


def case_a_server_that_is_given_a_token(tmp):
    """By --reload: the server itself need not be able to read the file. Nobody else gets the token."""
    served, token, old = served_folder(tmp), tmp / "token", tmp / "old"
    write_token(old, "a secret of the first day")
    write_token(token, "a secret of the next day")
    with Server(served, "--token-file", old) as server:
        def reload(key, pid=server.process.pid, **expected):
            run("serve", "--reload", pid, "--token-file", key, "--port", server.port, **expected)

        def get(key, **expected):
            run("get", "--token-file", key, server.url("file"), tmp / "copy", **expected)
        reload(token, os.getpid(), code=1, text=f"the server there is not process {os.getpid()}")
        get(old)
        reload(token)
        get(token)
        get(old, code=1, text="another token")
        if os.geteuid() == 0:
            write_token(tmp / "theirs", "a secret of somebody else")
            os.chown(tmp / "theirs", NOBODY, NOBODY)
            tmp.chmod(0o755)
            done = subprocess.run([PROGRAM, "serve", "--reload", str(server.process.pid), "--token-file",
                                   str(tmp / "theirs"), "--port", str(server.port)], user=NOBODY,
                                  capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 1 and "another user" in done.stderr, done
            get(token)
        for said in (b"token short", b"tok", b"x" * 10000):
            with socket.socket(socket.AF_UNIX) as caller:
                caller.connect(f"\0weft-serve-{server.port}")
                caller.sendall(said)
                caller.shutdown(socket.SHUT_WR)
        get(token)
        run("serve", "--reload", server.process.pid, "--port", server.port, code=2, text="needs --token-file")
    with Server(served) as server:
        run("serve", "--reload", server.process.pid, "--token-file", token, "--port", server.port, code=1,
            text="was started without --token-file")
        assert run("cat", server.url("file")) == b"content"


def case_a_token_with_an_acl(tmp):
    """As systemd hands out credentials: the server's user is named in an ACL, whose mask shows as the group's
    permissions."""
    token = tmp / "token"
    write_token(token, "a secret of sixteen octets or more")

    def allow(*entries):
        acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
        os.setxattr(token, "system.posix_acl_access", acl)
    nobody = 0xffffffff
    user_obj, user, group_obj, group, mask, other = 1, 2, 4, 8, 16, 32
    rest = [(mask, 4, nobody), (other, 0, nobody)]
    served = served_folder(tmp)
    refused = {"code": 1, "text": "other users can read this token"}
    try:
        allow((user_obj, 4, nobody), (user, 4, os.geteuid()), (group_obj, 0, nobody), *rest)
    except OSError as error:
        return print(f"a_token_with_an_acl: {error}; left out")
    with Server(served, "--token-file", token):
        pass
    allow((user_obj, 4, nobody), (user, 4, os.geteuid() + 1), (group_obj, 0, nobody), *rest)
    run("serve", "--token-file", token, served, **refused)
    allow((user_obj, 4, nobody), (user, 4, os.geteuid()), (group_obj, 4, nobody), *rest)
    run("serve", "--token-file", token, served, **refused)
    allow((user_obj, 4, nobody), (group_obj, 0, nobody), (group, 4, 1), *rest)
    run("serve", "--token-file", token, served, **refused)


def case_rates_of_nothing(tmp):
    """CPU time per GB is said where there were GB."""
    with Server(served_folder(tmp)) as server:
        run("get", "--stats", server.url("file"), tmp / "copy", text="CPU s\n")
    assert " 0.000 GB in" in server.log and "per GB" not in server.log, server.log


def case_the_systemd_unit_starts_a_server(tmp):
    """As it is in examples/ci, with a port that the machine's administrator has chosen; and gives it another token."""
    unit = pathlib.Path(__file__).resolve().parents[2] / "examples/ci/weft-serve.service"
    settings = dict(line.split("=", 1) for line in unit.read_text().splitlines() if line.startswith("Exec"))
    start, reload = settings["ExecStart"], settings["ExecReload"].removeprefix("+")
    assert start.startswith("/usr/bin/weft serve ") and reload.startswith("/usr/bin/weft serve "), settings
    token = tmp / "token"
    token.write_text("of sixteen octets or more")
    token.chmod(0o600)
    read, write = os.pipe()
    environment = {**os.environ, "CREDENTIALS_DIRECTORY": str(tmp), "SERVE_FOLDERS": str(served_folder(tmp)),
                   "SERVE_OPTIONS": f"--listen 127.0.0.1:0 --quiet --announce-fd {write}"}
    next_token = tmp / "next"
    write_token(next_token, "a secret of the next day")
    command = f"exec {PROGRAM} {start.removeprefix('/usr/bin/weft ')}"
    with subprocess.Popen(["bash", "-c", command], env=environment, pass_fds=[write]) as server:
        os.close(write)
        with os.fdopen(read) as announced:
            port = int(announced.readline())
        url = f"weft://127.0.0.1:{port}/file"
        assert run("cat", "--token-file", token, url) == b"content"
        environment |= {"MAINPID": str(server.pid), "SERVE_OPTIONS": f"--listen 127.0.0.1:{port}"}
        command = reload.removeprefix("/usr/bin/weft ").replace("/etc/weft-token", str(next_token))
        subprocess.run(["bash", "-c", f"exec {PROGRAM} {command}"], env=environment, timeout=60, check=True)
        assert run("cat", "--token-file", next_token, url) == b"content"
        run("cat", url, code=1)
        server.terminate()


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def main():
    run_cases(CASES, sys.argv[2:] or list(CASES), "weft-status-")


if __name__ == "__main__":
    main()
