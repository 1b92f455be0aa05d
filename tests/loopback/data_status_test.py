#!/usr/bin/env python3
"""What a data server tells of itself: weft serve --status, and its last line.

    data_status_test.py WEFT_DATA CASE...     without cases: all
"""

import os
import pathlib
import signal
import socket
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


def case_rates_of_nothing(tmp):
    """CPU time per GB is said where there were GB."""
    with Server(served_folder(tmp)) as server:
        run("get", "--stats", server.url("file"), tmp / "copy", text="CPU s\n")
    assert " 0.000 GB in" in server.log and "per GB" not in server.log, server.log


def case_the_systemd_unit_starts_a_server(tmp):
    """As it is in examples/ci, with a port that the machine's administrator has chosen."""
    unit = pathlib.Path(__file__).resolve().parents[2] / "examples/ci/weft-serve.service"
    start, = (line.removeprefix("ExecStart=") for line in unit.read_text().splitlines()
              if line.startswith("ExecStart="))
    assert start.startswith("/usr/bin/weft serve "), start
    token = tmp / "token"
    token.write_text("of sixteen octets or more")
    token.chmod(0o600)
    read, write = os.pipe()
    environment = {**os.environ, "CREDENTIALS_DIRECTORY": str(tmp), "SERVE_FOLDERS": str(served_folder(tmp)),
                   "SERVE_OPTIONS": f"--listen 127.0.0.1:0 --quiet --announce-fd {write}"}
    command = f"exec {PROGRAM} {start.removeprefix('/usr/bin/weft ')}"
    with subprocess.Popen(["bash", "-c", command], env=environment, pass_fds=[write]) as server:
        os.close(write)
        with os.fdopen(read) as announced:
            url = f"weft://127.0.0.1:{int(announced.readline())}/file"
        assert run("cat", "--token-file", token, url) == b"content"
        run("cat", url, code=1)
        server.terminate()


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def main():
    run_cases(CASES, sys.argv[2:] or list(CASES), "weft-status-")


if __name__ == "__main__":
    main()
