"""Tests of warm caches without a network, and of a worker that attacks them."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.image_protocol import ImageBuild
from orchestrator.repository.repository import Repository
from orchestrator.worker.workspace.caches import generations
from tests.support.cli import orchestrator
from tests.support.repository import git, make_repository

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600), pytest.mark.variants("overlay")]
# Overlay options cannot contain a comma, so the mode `bind` is used there.
PLACES = {"overlay": "plain", "bind": "with,comma"}
DOCKERFILE = f"""FROM {BASE_IMAGE}
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv
RUN python3 -m venv /opt/venv
"""
SERVER = '''"""A package index on this machine, with one package, whose answers may be kept."""
import http.server
import io
import zipfile

file = io.BytesIO()
with zipfile.ZipFile(file, "w") as wheel:
    wheel.writestr("acme.py", "answer = 42")
    info = "acme-1.0.dist-info/"
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: acme\\nVersion: 1.0\\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nTag: py2-none-any\\nTag: py3-none-any\\n")
    wheel.writestr(info + "RECORD", "")
PAGES = {
    "/simple/acme/": ("text/html", b'<a href="/acme-1.0-py2.py3-none-any.whl">acme</a>'),
    "/acme-1.0-py2.py3-none-any.whl": ("application/octet-stream", file.getvalue()),
}

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        kind, body = PAGES[self.path]
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=3600")
        self.end_headers()
        self.wfile.write(body)

http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
'''
ONLINE = (
    "python3 index.py & until python3 -c 'import socket;"
    ' socket.create_connection(("127.0.0.1", 8000))\' 2> /dev/null; do sleep 0.1; done;'
    " /opt/venv/bin/pip install --target .venv"
    " --trusted-host 127.0.0.1 --index-url http://127.0.0.1:8000/simple acme; code=$?;"
    " kill $!; exit $code"
)
OFFLINE = "/opt/venv/bin/pip install --target .venv acme"
ATTACK = """
touch /caches/evil 2>/dev/null && echo 'wrote beside the caches' >&2
find /caches/pip -type f -exec sh -c 'echo evil > "$1"' sh {} ';' || exit 1
ln -s /etc/passwd /caches/pip/wheels/link
ln -sfn /git /caches/pip/cache/http-v2/store
mv /caches/pip/wheels /caches/pip/moved && ln -s / /caches/pip/wheels
mkfifo /caches/pip/fifo
setfattr -n trusted.overlay.opaque -v y /caches/pip 2>/dev/null
umount /caches/pip 2>/dev/null && echo 'unmounted' >&2
grep -rq evil /caches/pip/moved && echo attacked > attacked.txt
"""
VICTIM = (
    "test -z \"$(find /caches/pip ! -type d ! -type f)\" && test ! -e /caches/pip/moved"
    " && ! grep -rqx evil /caches/pip"
    " && /opt/venv/bin/pip install --target .venv --upgrade --force-reinstall acme"
    " && PYTHONPATH=.venv python3 -c 'import acme; print(acme.answer)' > answer.txt"
)  # fmt: skip


@pytest.fixture(scope="module")
def image(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Build a base image with pip."""
    context = tmp_path_factory.mktemp("image")
    (context / "Dockerfile").write_text(DOCKERFILE)
    tag = f"orchestrator/test-caches:{context.parent.name}"
    docker_engine.build(ImageBuild(context=context, tag=tag), progress=lambda _: None)
    yield tag
    client = docker.from_env()
    client.images.remove(tag)
    client.close()


@pytest.fixture(params=PLACES)
def repo(request: pytest.FixtureRequest, tmp_path: Path, home: Path) -> Path:  # noqa: ARG001
    place = tmp_path / PLACES[request.param]
    place.mkdir()
    repo = make_repository(place / "repo")
    (repo / ".gitignore").write_text(".venv/\n")
    (repo / "index.py").write_text(SERVER)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "a project")
    return repo


def fingerprint(tree: Path) -> str:
    """Return a hash of a tree: names, types, modes, owners, contents."""
    said = hashlib.sha256()
    for path in sorted(tree.rglob("*")):
        info = path.lstat()
        said.update(repr((str(path), info.st_mode, info.st_uid, info.st_mtime_ns)).encode())
        if path.is_file() and not path.is_symlink():
            said.update(path.read_bytes())
    return said.hexdigest()


FILL = (
    "mkdir -p /caches/pip/wheels /caches/pip/cache/http-v2 && "
    "echo good | tee /caches/pip/wheels/acme > /caches/pip/cache/http-v2/index"
)
LOOK = (
    'test -z "$(find /caches/pip ! -type d ! -type f)" && test ! -e /caches/pip/moved'
    " && cat /caches/pip/wheels/acme > answer.txt"
)


def test_worker_cannot_change_the_cache_of_others(repo: Path) -> None:
    command = ("--cache", "pip", "--agent-cli", "shell")
    warm = orchestrator("cache", "warm", *command, "--setup", FILL, "--json", cwd=repo)
    assert warm.returncode == 0, warm.stdout + warm.stderr
    (generation,) = generations(Repository(repo))
    before = fingerprint(generation)
    done = orchestrator(
        "parallel", *command, "--network", "none", "--workers", "1", "--json",
        "--task", ATTACK, "--task", LOOK, "--check", LOOK.partition(" && cat")[0], cwd=repo,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    attacker, victim = done.results.values()
    assert attacker["files_modified"] == ["attacked.txt"]
    assert git(repo, "show", f"{victim['branch']}:answer.txt") == "good"
    for result in (attacker, victim):
        assert (Path(result["log"]) / "stderr.log").read_text() == ""
        assert not (Path(result["log"]) / "caches").exists()
    assert fingerprint(generation) == before


@pytest.mark.extra
def test_pip_works_offline_beside_a_worker_that_attacks_its_cache(repo: Path, image: str) -> None:
    warm = orchestrator(
        "cache", "warm", "--cache", "pip", "--agent-cli", "shell", "--image", image,
        "--setup", ONLINE, "--json", cwd=repo,
    )  # fmt: skip
    assert warm.returncode == 0, warm.stdout + warm.stderr
    (generation,) = generations(Repository(repo))
    assert (generation / "pip" / "wheels" / "acme-1.0-py2.py3-none-any.whl").is_file()
    assert git(repo, "worktree", "list").count("\n") == 0
    assert git(repo, "for-each-ref", "refs/heads/architect", "refs/orchestrator") == ""
    before = fingerprint(generation)
    done = orchestrator(
        "parallel", "--cache", "pip", "--agent-cli", "shell", "--image", image,
        "--network", "none", "--setup", OFFLINE, "--workers", "1", "--json",
        "--task", ATTACK, "--task", VICTIM, "--check", OFFLINE, cwd=repo,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    attacker, victim = done.results.values()
    assert attacker["files_modified"] == ["attacked.txt"]
    assert victim["files_modified"] == ["answer.txt"]
    assert git(repo, "show", f"{victim['branch']}:answer.txt") == "42"
    for result in (attacker, victim):
        assert (Path(result["log"]) / "stderr.log").read_text() == ""
        assert not (Path(result["log"]) / "caches").exists()
    assert fingerprint(generation) == before
    listed = orchestrator("cache", "ls", "--json", cwd=repo).json["caches"]
    assert [(one["generation"], one["cache"]) for one in listed] == [(generation.name, "pip")]
    assert orchestrator("cache", "clear", cwd=repo).stdout == f"removed {generation.name}\n"
    assert orchestrator("cache", "ls", cwd=repo).stdout == ""


@pytest.mark.extra
def test_failed_setup_publishes_nothing(repo: Path) -> None:
    warm = orchestrator(
        "cache", "warm", "--cache", "uv", "--agent-cli", "shell", "--setup",
        "touch /caches/uv/half; exit 3", "--json", cwd=repo,
    )  # fmt: skip
    (result,) = warm.results.values()
    assert (warm.returncode, result["reason"]) == (1, "setup_failed")
    assert generations(Repository(repo)) == []
