"""Tests of the server at a real port, of the command's options, and of exported pages."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

import pytest

from orchestrator.base.results import Reason, Status
from orchestrator.faces.cli.app import run
from orchestrator.faces.web.forms import RUN_FORMS, WORKER_FORMS
from orchestrator.faces.web.server import listening
from tests.support.cli import start
from tests.support.errors import reports
from tests.support.ports import free_port
from tests.support.reports import RUN_ID
from tests.support.web import Server, Shape, ended_run, result_of

TASK = "the task of the worker"
_AS_NOBODY = """
import encodings.idna, http.client, json, os, sys

asked = json.load(sys.stdin)
os.setuid(65534)
for path in asked["paths"]:
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    try:
        connection.request("POST", path, asked["body"], asked["headers"])
        status = connection.getresponse().status
    except ConnectionError:
        status = 403  # closed before it was answered
    print("refused" if status == 403 else status)
"""
"""A program of another user, which sends forms with the session of somebody else."""


@pytest.fixture(autouse=True)
def there(repo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a run, and enter its repository."""
    directory = ended_run(
        repo, result_of(1), result_of(2, status=Status.FAILED, reason=Reason.OOM), task=TASK
    )
    (directory.worker(1) / "stdout.log").write_text("said by worker 1\n")
    monkeypatch.chdir(repo)
    return repo


def test_server_at_a_port_signs_in_survives_a_kill_and_ends(there, tmp_path):
    port = str(free_port())
    server = Server(there, "--port", port, state=tmp_path)
    own = f"http://127.0.0.1:{port}"
    assert server.ask("GET", "/")[0] == 401
    forms = {"Origin": own, "Sec-Fetch-Site": "same-origin"}
    assert server.ask("POST", "/open", server.key, **forms)[0] == 204
    cookie = {"Cookie": server.cookie.partition(";")[0]}
    assert TASK in server.ask("GET", "/", **cookie)[1]
    host = f"Host: 127.0.0.1:{port}\r\nCookie: {cookie['Cookie']}\r\n"
    absolute = f"GET http://evil.example/ HTTP/1.1\r\n{host}\r\n"
    assert b" 400 " in server.raw(absolute.encode())
    socket_asked = f"GET / HTTP/1.1\r\n{host}Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    assert b" 400 " in server.raw(socket_asked.encode())
    assert b" 400 " in server.raw(b"GET / HTTP/1.1\r\n\r\n"), "without a host"
    assert server.end(signal.SIGKILL) == -signal.SIGKILL
    again = Server(there, "--port", port, state=tmp_path)
    assert TASK in again.ask("GET", "/", **cookie)[1]
    assert again.ask("POST", "/open", server.key, **forms)[0] == 403
    assert again.end(signal.SIGINT) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a program of another user")
def test_forms_from_another_user_are_refused_whatever_it_has_stolen(there, tmp_path):
    server = Server(there, state=tmp_path)
    own = f"http://127.0.0.1:{server.port}"
    headers = {"Origin": own, "Sec-Fetch-Site": "same-origin"}
    server.ask("POST", "/open", server.key, **headers)
    headers["Cookie"] = server.cookie.partition(";")[0]
    page = server.ask("GET", "/repo/new", **headers)[1]
    stolen = dict(re.findall(r'type="hidden" name="(token|once)" value="(\w+)"', page))
    body = urlencode({**stolen, "how": "start", "check": "true"})
    run_files = there / ".git" / "orchestrator"
    before = sorted(run_files.rglob("*"))
    paths = [f"/repo/{RUN_ID}/{form}" for form in ("stop", "merge", "pick", *RUN_FORMS)]
    paths += [f"/repo/{RUN_ID}/1/{form}" for form in ("stop", "comment", *WORKER_FORMS)]
    asked = json.dumps({"paths": ["/repo/new", *paths], "headers": headers, "body": body})
    program = [sys.executable, "-Ic", _AS_NOBODY, str(server.port)]
    answers = subprocess.run(program, input=asked, capture_output=True, text=True, cwd="/")
    assert answers.stdout.split() == ["refused"] * (len(paths) + 1), answers.stderr
    assert sorted(run_files.rglob("*")) == before
    # The same form is accepted from its owner.
    body = body.replace("how=start", "how=show")
    assert server.ask("POST", "/repo/new", body, **headers)[0] == 200
    assert server.end(signal.SIGINT) == 0


def test_socket_is_for_its_owner_only(there, tmp_path):
    path = tmp_path / "ui.sock"
    process = start("ui", "--socket", str(path), cwd=there, stderr=subprocess.PIPE)
    assert process.stderr is not None
    process.stderr.readline()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost:9\r\n\r\n")
        assert b" 401 " in connection.recv(100)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert not path.exists()


def test_socket_can_be_used_again_however_the_server_ended(there, tmp_path):
    path = tmp_path / "ui.sock"
    for number, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)):
        process = start("ui", "--socket", str(path), cwd=there, stderr=subprocess.PIPE)
        assert process.stderr is not None
        assert b"serving at the socket" in process.stderr.readline()
        other = start("ui", "--socket", str(path), cwd=there, stderr=subprocess.PIPE)
        assert b"cannot be created: Address already in use" in (other.communicate(timeout=60)[1])
        assert other.returncode == 3, "a socket that is served is not taken away"
        process.send_signal(number)
        process.communicate(timeout=60)
        assert process.returncode == code
        assert path.exists() == (number == signal.SIGKILL)
    again = start("ui", "--socket", str(path), cwd=there, stderr=subprocess.PIPE)
    assert again.stderr is not None
    assert b"serving at the socket" in again.stderr.readline()
    again.terminate()
    again.communicate(timeout=60)
    assert not path.exists()
    path.write_text("a file")
    assert run(["ui", "--socket", str(path)]) == 3
    assert path.read_text() == "a file"


def test_missing_packages_are_one_line_and_a_hint(monkeypatch, capsys):
    for name in [one for one in sys.modules if one.startswith("orchestrator.faces.web.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setitem(sys.modules, "starlette", None)
    assert run(["ui", "--export", "x"]) == 3
    said = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"error: the web view is not installed: the package `\S+` is missing", said[0]
    )
    hint = "install the extra `ui`: `pip install 'worktree-orchestrator[ui]'`"
    assert said[1:] == ["", f"hint: {hint}"]


@pytest.mark.parametrize(("options", "said"), [
    (["--export", "x", "--port", "9"], "`--export` cannot be used with `--port`"),
    (["--export", "x", "--read-only"], "`--export` cannot be used with `--read-only`"),
    (["--socket", "x", "--port", "9"], "`--socket` cannot be used with `--port`"),
    (["--socket", "x", "--open"], "`--socket` cannot be used with `--open`"),
    (["--root", "/"], "not a git repository: /"),
    (["--socket", "/nowhere/x"], "the socket /nowhere/x cannot be created: No such file"),
    (["--socket", "/tmp/" + "x" * 200], "the path of the socket is longer than 107 bytes"),
])  # fmt: skip
def test_wrong_options_are_refused(options, said, capsys):
    assert run(["ui", *options]) == 3
    assert f"error: {said}" in capsys.readouterr().err


def test_server_listens_on_the_loopback_interface_only():
    with listening(0) as server:
        assert server.getsockname()[0] == "127.0.0.1"


def test_port_in_use_is_an_error_with_a_hint(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run(["ui", "--port", str(taken.getsockname()[1])]) == 3
    assert "hint: choose another port with `--port`" in capsys.readouterr().err


def test_exported_pages_need_no_server(tmp_path, capsys):
    target = tmp_path / "pages"
    assert run(["ui", "--export", str(target)]) == 0
    assert capsys.readouterr().out == f"wrote 1 run: {target}/index.html\n"
    names = {path.name for path in target.iterdir()}
    assert f"repo-{RUN_ID}-1-log-stdout.html" in names
    assert f"repo-{RUN_ID}-compare-1-2.html" in names
    for page in target.glob("*.html"):
        text = page.read_text()
        for link in Shape(text).links:
            assert link.startswith("#") or link in names, (page.name, link)
        assert "<form" not in text
        assert "Content-Security-Policy" in text
        assert "form-action 'none'" in text
        assert "app.js" not in text
    assert TASK in (target / "index.html").read_text()
    assert "said by worker 1" in (target / f"repo-{RUN_ID}-1.html").read_text()
    (target / "index.html").write_text("old")
    assert run(["ui", "--export", str(target)]) == 0, "an export is replaced"
    assert TASK in (target / "index.html").read_text()
    assert {path.name for path in target.iterdir()} == names


@pytest.mark.parametrize(("workers", "pairs"), [(4, 6), (12, 11)])
def test_export_compares_each_worker_with_each_or_many_with_the_first(
    there, tmp_path, workers, pairs
):
    other = "20300101-000000-aaaaaa"
    ended_run(there, *(result_of(number) for number in range(1, workers + 1)), run_id=other)
    target = tmp_path / "pages"
    assert run(["ui", "--export", str(target)]) == 0
    written = {path.name for path in target.glob(f"repo-{other}-compare-*.html")}
    assert len(written) == pairs
    first = Shape((target / f"repo-{other}-compare.html").read_text())
    assert "From worker 1 to worker 2" in first.text
    linked = {link for name in written for link in Shape((target / name).read_text()).links}
    assert written <= linked
    assert written & {*first.links}


def test_export_refuses_a_directory_with_other_files(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with reports("directory.occupied"):
        assert run(["ui", "--export", str(tmp_path)]) == 3
    assert [path.name for path in tmp_path.glob("*.html")] == []
