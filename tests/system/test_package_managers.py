"""Tests of warm caches with the real pip, npm, uv and cargo, as root and as an ordinary user.

The packages come from a server in the worker's container, so that nothing leaves this machine.
"""

import base64
import hashlib
import io
import json
import os
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.images.recipes import ca_bundle
from tests.assurance.attacks.caller import Caller, callers
from tests.support.images import built_image
from tests.support.repository import git, make_repository

pytestmark = [pytest.mark.docker, pytest.mark.extra, pytest.mark.timeout(1800)]
URL = "http://127.0.0.1:8000"
DOCKERFILE = f"""FROM {BASE_IMAGE}
RUN apt-get update && apt-get install --yes --no-install-recommends npm cargo python3-venv
COPY ca.cr[t] /opt/
RUN python3 -m venv /opt/venv \\
 && if [ -e /opt/ca.crt ]; then export PIP_CERT=/opt/ca.crt; fi && /opt/venv/bin/pip install uv
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""
SERVER = '''"""Serve the directory `index`; answers may be kept."""
import functools
import http.server


class Handler(http.server.SimpleHTTPRequestHandler):
    def end_headers(self):
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()


handler = functools.partial(Handler, directory="index")
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), handler).serve_forever()
'''
INSTALL = {
    "pip": "pip install --no-deps --target .venv --upgrade acme",
    "npm": "npm ci",
    "uv": "uv pip install --target .uv --reinstall --link-mode copy acme",
    "cargo": "cargo check --locked",
}
ONLINE = (
    "python3 index.py & until python3 -c 'import socket;"
    ' socket.create_connection(("127.0.0.1", 8000))\' 2> /dev/null; do sleep 0.1; done; '
    "{ %s; }; code=$?; kill $!; exit $code"
)
FROM_INDEX = f"PIP_TRUSTED_HOST=127.0.0.1 PIP_INDEX_URL={URL}/simple UV_INDEX_URL={URL}/simple"
ARRANGEMENTS = ("start", "none")


@pytest.fixture(scope="module")
def image(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    context = tmp_path_factory.mktemp("image")
    (context / "Dockerfile").write_text(DOCKERFILE)
    bundle = ca_bundle(os.environ)
    if bundle is not None:
        (context / "ca.crt").write_bytes(bundle.read_bytes())
    tag = f"orchestrator/test-package-managers:{context.parent.name}"
    with built_image(docker_engine, context, tag) as name:
        yield name


@pytest.fixture(scope="module")
def everyone() -> Iterator[dict[str, Caller]]:
    # Other users cannot enter the directories that pytest makes.
    with tempfile.TemporaryDirectory() as directory, callers(Path(directory)) as found:
        yield found


@pytest.mark.parametrize("worktrees", ARRANGEMENTS)
@pytest.mark.parametrize("name", ["root", "user"])
def test_caches_serve_every_worker(
    everyone: dict[str, Caller], image: str, name: str, worktrees: str
) -> None:
    caller = everyone[name]
    repo = project(caller.home / f"shop-{worktrees}")
    caller.own(repo)
    caches = [word for kind in INSTALL for word in ("--cache", kind)]
    common = (*caches, "--agent-cli", "shell", "--image", image)
    cold = [
        word for line in INSTALL.values() for word in ("--setup", ONLINE % f"{FROM_INDEX} {line}")
    ]
    run(caller, repo, "cache", "warm", *common, *cold)
    before = owners(repo / ".git/orchestrator/caches")
    # The index is gone: each worker installs from the caches alone, twice, and changes them.
    again = " && ".join((*INSTALL.values(), "npm cache verify", "pip cache purge"))
    offline = [word for line in INSTALL.values() for word in ("--setup", f"{FROM_INDEX} {line}")]
    done = run(
        caller, repo, "parallel", *common, *offline, "--network", "none", "--workers", "2",
        "--worktrees", worktrees, "--check", INSTALL["npm"], f"{FROM_INDEX} sh -c '{again}'",
    )  # fmt: skip
    # A warm cache, with the index: nothing may be refused or broken.
    done += run(
        caller, repo, "parallel", *common, *cold, "--workers", "2", "--worktrees", worktrees,
        "test -d node_modules/acme",
    )  # fmt: skip
    assert [one["status"] for one in done] == ["success"] * 4, done
    assert all(check["passed"] for one in done for check in one["checks"] or ())
    assert owners(repo / ".git/orchestrator/caches") == before
    assert len({owner for _, owner in before if owner != caller.uid}) == (caller.uid == 0)


def run(caller: Caller, repo: Path, *arguments: str) -> list[dict[str, Any]]:
    command = (caller.python, "-m", "orchestrator", *arguments, "--json", "--quiet")
    return list(json.loads(caller.run(*command, cwd=repo, timeout=600))["results"])


def owners(tree: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_uid) for path in tree.rglob("*"))


def project(repo: Path) -> Path:
    """Make a project that depends on a package of each package manager, and their index."""
    make_repository(repo)
    index = repo / "index"
    wheel = "acme-1.0-py3-none-any.whl"
    npm = tar("package", {"package.json": '{"name": "acme", "version": "1.0.0"}'})
    crate = tar(
        "acme-1.0.0",
        {"Cargo.toml": '[package]\nname = "acme"\nversion = "1.0.0"\n', "src/lib.rs": ""},
    )
    digest = hashlib.sha256(crate).hexdigest()
    entry = {"name": "acme", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False}
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(npm).digest()).decode()
    locked = {"version": "1.0.0", "resolved": f"{URL}/acme.tgz", "integrity": integrity}
    package = {"name": "shop", "version": "1.0.0", "dependencies": {"acme": "1.0.0"}}
    files: dict[str, str | bytes] = {
        ".gitignore": ".venv/\n.uv/\nnode_modules/\ntarget/\n",
        "index.py": SERVER,
        "index/simple/acme/index.html": f'<a href="/{wheel}">acme</a>',
        f"index/{wheel}": wheel_of(),
        "index/acme.tgz": npm,
        "package.json": json.dumps(package),
        "package-lock.json": json.dumps(
            {"name": "shop", "version": "1.0.0", "lockfileVersion": 3,
             "packages": {"": package, "node_modules/acme": locked}}
        ),
        "index/crates/config.json": json.dumps({"dl": f"{URL}/crates/dl/{{crate}}-{{version}}"}),
        "index/crates/ac/me/acme": json.dumps({**entry, "cksum": digest}) + "\n",
        "index/crates/dl/acme-1.0.0": crate,
        ".cargo/config.toml": f'[source.crates-io]\nreplace-with = "local"\n'
        f'[source.local]\nregistry = "sparse+{URL}/crates/"\n',
        "Cargo.toml": '[package]\nname = "shop"\nversion = "1.0.0"\nedition = "2021"\n'
        '[dependencies]\nacme = "1.0.0"\n',
        "Cargo.lock": "version = 3\n\n[[package]]\nname = \"acme\"\nversion = \"1.0.0\"\n"
        'source = "registry+https://github.com/rust-lang/crates.io-index"\n'
        f'checksum = "{digest}"\n\n[[package]]\nname = "shop"\nversion = "1.0.0"\n'
        'dependencies = [\n "acme",\n]\n',
        "src/lib.rs": "extern crate acme;\n",
    }  # fmt: skip
    for name, content in files.items():
        path = repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert index.is_dir()
    git(repo, "add", "-A", "-f")
    git(repo, "commit", "-qm", "a project")
    return repo


def tar(top: str, files: dict[str, str]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return data.getvalue()


def wheel_of() -> bytes:
    data = io.BytesIO()
    info = "acme-1.0.dist-info/"
    with zipfile.ZipFile(data, "w") as wheel:
        wheel.writestr("acme.py", "answer = 42")
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(info + "RECORD", "")
    return data.getvalue()
