"""Workers that read private repositories through the credential broker; the git host is here."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bridge import bridge_gateway
from tests.support.cli import orchestrator, printed
from tests.support.git_host import GitHost, git_host
from tests.support.repository import git, make_repository

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("broker_image")]
TOKEN = "ghp-canary-93af10c7d2e4"
SHELL = ("parallel", "--agent-cli", "shell", "--workers", "1", "--json")
PUSH = (
    "git -C lib -c user.name=a -c user.email=a@b commit -q --allow-empty -m mine; "
    "git -C lib push -q"
)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[GitHost]:
    """A git host with the private repositories `acme/lib` and `acme/other`."""
    root = tmp_path / "host"
    for name in ("lib", "other"):
        source = make_repository(tmp_path / name)
        bare = root / "acme" / f"{name}.git"
        git(source, "clone", "-q", "--bare", str(source), str(bare))
        git(bare, "config", "http.receivepack", "true")
    with git_host(root, bridge_gateway(), f"x-access-token:{TOKEN}") as server:
        yield server


def test_listed_repository_is_cloned_and_never_pushed(host: GitHost, repo: Path) -> None:
    lib, other = (f"http://{host.place}/acme/{name}" for name in ("lib.git", "other.git"))
    ssh = f"git@{host.place.partition(':')[0]}:acme/lib.git"
    setup = f"git clone -q {lib} lib && cat lib/a.txt; {PUSH} 2>&1; rm -rf lib"
    task = (
        f"git clone -q {lib} && cat lib/a.txt; git clone -q {ssh} again && git -C again log -1 "
        f"--format=%s; git -C again submodule --quiet add {lib} sub && cat again/sub/a.txt; "
        f"{PUSH} 2>&1; git clone -q {other} 2>&1; "
        "(env; cat /proc/*/environ lib/.git/config | tr '\\0' '\\n') > seen; mv lib again /tmp"
    )
    done = orchestrator(
        *SHELL, "--keys", "broker", "--network", "none", "--env", "HOST_TOKEN",
        "--git-read", f"http://{host.place}/acme/lib=HOST_TOKEN", "--setup", setup, task,
        cwd=repo, env={"HOST_TOKEN": TOKEN},
    )  # fmt: skip
    assert 1 in done.results, done.stderr
    result = done.results[1]
    said = printed(result)
    assert said.startswith("a\n"), said
    assert said.splitlines()[2] == "a", said
    of_setup = (Path(result["log"]) / "setup.log").read_text()
    assert of_setup.splitlines()[1] == "a", of_setup
    for text in (said, of_setup):
        assert "gateway: workers may read this repository, not push" in text
    # The name of the address is followed only because its repository is listed.
    assert said.count("fatal: unable to access") >= 1
    seen = git(repo, "show", f"{result['branch']}:seen")
    assert "HOST_TOKEN" not in seen
    files = b"".join(path.read_bytes() for path in repo.rglob("*") if path.is_file())
    for text in (done.stdout, done.stderr, said, seen, files.decode(errors="replace")):
        assert TOKEN not in text
    assert {line.partition("?")[0] for line in host.seen} == {
        "GET /acme/lib.git/info/refs", "POST /acme/lib.git/git-upload-pack",
    }  # fmt: skip
    assert "receive-pack" not in json.dumps(host.seen)


@pytest.mark.extra
def test_host_accepts_a_push_of_a_worker_that_has_the_token(host: GitHost, repo: Path) -> None:
    lib = f"http://x-access-token:$HOST_TOKEN@{host.place}/acme/lib.git"
    done = orchestrator(
        *SHELL, "--network", "open", "--allow", host.place, "--env", "HOST_TOKEN",
        f"git clone -q {lib}; {PUSH} 2>&1 && echo pushed; rm -rf lib",
        cwd=repo, env={"HOST_TOKEN": TOKEN},
    )  # fmt: skip
    assert printed(done.results[1]).splitlines()[-1] == "pushed", printed(done.results[1])
    assert "POST /acme/lib.git/git-receive-pack" in host.seen
