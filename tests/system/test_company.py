"""A company's mirror, proxy and certificate authority, for setup, workers and checks.

All three are in the outside, a network namespace of the test; no packet leaves this machine.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Completed, orchestrator, printed
from tests.support.outside import Outside, outside

pytestmark = pytest.mark.docker
SHELL = ("parallel", "--agent-cli", "shell", "--json", "--workers", "1")
TOKEN = "token-of-the-mirror-77"
PAGE = '<a href="demo-1.0-py3-none-any.whl">demo-1.0-py3-none-any.whl</a>'


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    with outside(tmp_path_factory.mktemp("outside")) as made:
        yield made


def logs(done: Completed, *names: str) -> list[str]:
    (result,) = done.results.values()
    return [(Path(result["log"]) / f"{name}.log").read_text() for name in names]


def test_mirror_and_authority_reach_every_stage_of_an_allow_list(
    world: Outside, repo: Path
) -> None:
    index = f"https://ann:{TOKEN}@files.example/simple"
    ask = (
        'echo "$PIP_INDEX_URL"; curl -fsS https://files.example/a; '
        # As pip asks; the base image has no pip.
        'curl -fsS "$PIP_INDEX_URL/demo/" >/dev/null; '
        "curl -fsS https://other.example/ 2>&1 | tail -n 1"
    )
    with world.site() as site:
        (site / "a").write_text("page of the mirror\n")
        (site / "simple" / "demo").mkdir(parents=True)
        (site / "simple" / "demo" / "index.html").write_text(PAGE)
        done = world.orchestrator(
            *SHELL, "--network", "allowlist", "--check-network", "allowlist",
            "--company", "pip=MY_INDEX", "--company", f"ca={world.certificate}",
            "--setup", ask, "--check", ask, f"{ask}; touch made", cwd=repo, env={"MY_INDEX": index},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [*logs(done, "setup", "check-1"), printed(done.results[1])]
    for text in said:
        assert "page of the mirror" in text
        assert "Could not resolve host: other.example" in text
        # A password of a mirror is a secret.
        assert TOKEN not in text
        assert "[redacted:" in text
    paths = [entry["path"] for entry in world.seen("tls")]
    assert paths.count("/simple/demo/") >= 3
    files = (path.read_bytes() for path in (repo / ".git/orchestrator").rglob("*")
             if path.is_file())  # fmt: skip
    assert not any(TOKEN.encode() in content for content in files)


@pytest.mark.extra
def test_proxy_and_private_mirror_are_opened_on_an_open_network(world: Outside, repo: Path) -> None:
    world.forget()
    proxy = "http://10.99.112.11:8080"
    task = (
        "curl -fsS http://anything.example/b; curl -fsS -m 9 http://10.99.112.10/direct; "
        "curl -sS -m 9 --noproxy '*' http://10.99.112.12/ || echo closed"
    )
    done = world.orchestrator(
        *SHELL, "--network", "open", "--company", f"proxy={proxy}",
        "--company", "npm=http://10.99.112.10/", task, cwd=repo,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [line for line in printed(done.results[1]).splitlines() if "curl" not in line] == [
        "served 10.99.112.11:8080 http://anything.example/b",
        "served 10.99.112.10:80 /direct",
        "closed",
    ]


def test_proxy_does_not_get_past_a_list(repo: Path) -> None:
    done = orchestrator(
        *SHELL, "--network", "allowlist", "--allow", "a.example.net",
        "--company", "proxy=http://10.99.112.11:8080", "true", cwd=repo,
    )  # fmt: skip
    assert done.returncode == 3
    assert "hosts that are not on their list" in done.stderr


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("pip=https://ann:secret-word@mirror.example/", "must be in a variable"),
        ("pip=ftp://mirror.example/", "must be an HTTP URL"),
        ("pip=NOT_SET", "`NOT_SET` is not set to a URL"),
        ("cargo=https://mirror.example/", "pip, npm, go, proxy, ca"),
        ("ca=/does/not/exist", "No such file"),
        ("ca=/etc/hostname", "no certificate"),
    ],
)
def test_wrong_entry_is_refused(repo: Path, entry: str, told: str) -> None:
    done = orchestrator(*SHELL, "--network", "open", "--company", entry, "true", cwd=repo)
    assert done.returncode == 3
    assert told in done.stderr
    assert "secret-word" not in done.stderr


def test_file_of_a_repository_cannot_name_a_company(repo: Path) -> None:
    (repo / "orchestrator.yaml").write_text("container: {company: [pip=http://evil.example/]}\n")
    done = orchestrator(*SHELL, "--network", "none", "true", cwd=repo)
    assert done.returncode == 3
    assert "company" in done.stderr
