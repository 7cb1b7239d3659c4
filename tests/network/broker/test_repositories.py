"""Tests of the credential broker with private repositories of git hosts."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.settings.values import PrivateRepository
from orchestrator.network.broker.grant import Repository
from orchestrator.network.broker.keys import readable_repositories
from orchestrator.network.broker.repositories import find_git_call, git_configuration, git_settings
from tests.network.broker.upstream import TOKEN, Answer, Api, Reply, RunningBroker, api
from tests.support.errors import raises
from tests.support.repository import git

SECRET = "ghp-canary-41b9d07ce2"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
REFS = "info/refs?service=git-upload-pack"


@pytest.fixture(scope="module")
def host() -> Iterator[Api]:
    """A git host, which answers each request with the same text."""
    with api() as server:
        yield server


_workers = iter(range(1, 250))


@pytest.fixture
def worker(host: Api, process: RunningBroker) -> int:
    """A worker that may read `acme/lib` and all repositories below `team/`."""
    number = next(_workers)
    host.answer = Answer(b"0000")
    host.seen.clear()
    listed = tuple(
        Repository(url=f"{host.url}/{path}", key=f"x-access-token:{SECRET}")
        for path in ("acme/lib", "team/*")
    )
    process.grant(host.url, worker=number, repositories=listed)
    return number


def ask(
    process: RunningBroker, host: Api, worker: int, path: str, *, method: str = "GET", **more: Any
) -> Reply:
    place = host.url.removeprefix("http://")
    return process.call(f"/git/{place}/{path}", method=method, worker=worker, **more)


def test_listed_repositories_are_read_with_the_token_of_the_host(
    host: Api, process: RunningBroker, worker: int
) -> None:
    basic = base64.b64encode(f"x-access-token:{SECRET}".encode()).decode()
    body = gzip.compress(b"0032want")
    given = {
        **BEARER, "Git-Protocol": "version=2", "Content-Encoding": "gzip", "Cookie": "a=b",
        "Content-Type": "application/x-git-upload-pack-request",
    }  # fmt: skip
    for path in ("acme/lib", "acme/lib.git", "team/one", "team/below/two.git"):
        host.seen.clear()
        assert ask(process, host, worker, f"{path}/{REFS}").status == 200
        pack = f"{path}/git-upload-pack"
        reply = ask(process, host, worker, pack, method="POST", body=body, headers=given)
        assert (reply.status, reply.body) == (200, b"0000")
        (refs, headers, _), (asked, of_pack, sent) = host.seen
        assert refs == f"GET /{path}/{REFS}"
        assert asked == f"POST /{pack}"
        assert headers["Authorization"] == of_pack["Authorization"] == f"Basic {basic}"
        # The broker decompresses the body.
        assert (of_pack["Git-Protocol"], sent) == ("version=2", b"0032want")
        assert not {"Cookie", "Content-Encoding"} & of_pack.keys()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "acme/lib/info/refs?service=git-receive-pack"),
        ("POST", "acme/lib/git-receive-pack"),
        ("POST", "team/one.git/git-receive-pack"),
    ],
)
def test_pushes_are_refused(
    host: Api, process: RunningBroker, worker: int, method: str, path: str
) -> None:
    reply = ask(process, host, worker, path, method=method)
    assert (reply.status, reply.code) == (403, "push_not_allowed")
    # Git shows such a text to its user.
    assert reply.headers["content-type"].startswith("text/plain")
    assert b"gateway: workers may read this repository, not push" in reply.body
    assert host.seen == []


def test_content_of_git_lfs_is_refused_with_a_message(
    host: Api, process: RunningBroker, worker: int
) -> None:
    batch = "info/lfs/objects/batch"
    reply = ask(process, host, worker, f"acme/lib.git/{batch}", method="POST")
    assert (reply.status, reply.code) == (403, "lfs_not_allowed")
    # git-lfs shows such a message to its user.
    assert reply.headers["content-type"].startswith("application/json")
    said = json.loads(reply.body)["message"]
    assert said == "gateway: the broker cannot read git-lfs content: set GIT_LFS_SKIP_SMUDGE=1"
    other = ask(process, host, worker, f"acme/other.git/{batch}", method="POST")
    assert other.code == "repository_not_allowed"
    assert host.seen == []


def test_other_requests_are_refused(host: Api, process: RunningBroker, worker: int) -> None:
    for path in (
        f"acme/other/{REFS}", f"acme/lib2/{REFS}", f"acme/{REFS}", f"team/{REFS}",
        f"teams/x/{REFS}",
        f"ACME/lib/{REFS}", f"team/../acme/other/{REFS}", f"team/%2e%2e/acme/other/{REFS}",
        f"team/./one/{REFS}", f"team//one/{REFS}", f"team/one%2f..%2f..%2facme/{REFS}",
        f"acme/lib.git.git/{REFS}", f"team/one;x/{REFS}", f"team/one\\..\\x/{REFS}",
        "acme/lib/info/refs", "acme/lib/info/refs?service=git-upload-archive", "acme/lib/HEAD",
        "acme/lib/objects/info/packs", "acme/lib/info/lfs/objects/batch", "acme/lib",
        "acme/lib/git-upload-pack",
    ):  # fmt: skip
        reply = ask(process, host, worker, path)
        assert reply.status == 403, path
        assert reply.code in ("call_not_allowed", "repository_not_allowed"), path
    for path in ("team/one/git-upload-archive", f"acme/lib/{REFS}", "team/one/info/lfs/locks"):
        assert ask(process, host, worker, path, method="POST").status == 403, path
    elsewhere = process.call(f"/git/127.0.0.1:1/acme/lib/{REFS}", method="GET", worker=worker)
    assert elsewhere.code == "repository_not_allowed"
    assert host.seen == []


def test_token_of_the_worker_is_needed(host: Api, process: RunningBroker, worker: int) -> None:
    for headers in ({}, {"Authorization": f"Bearer {SECRET}"}):
        reply = ask(process, host, worker, f"acme/lib/{REFS}", headers=headers)
        assert (reply.status, reply.code) == (401, "invalid_gateway_token")
    other = next(_workers)
    process.grant(host.url, worker=other, token="another")
    assert ask(process, host, other, f"acme/lib/{REFS}").status == 401
    process.grant(host.url, worker=other)
    assert ask(process, host, other, f"acme/lib/{REFS}").code == "repository_not_allowed"
    assert host.seen == []


def test_token_of_the_host_is_removed_from_answers(
    host: Api, process: RunningBroker, worker: int
) -> None:
    basic = base64.b64encode(f"x-access-token:{SECRET}".encode())
    host.answer = Answer(
        b"x" + SECRET[:9].encode(), SECRET[9:].encode() + b" " + basic,
        headers={"X-Echo": SECRET},
    )  # fmt: skip
    reply = ask(process, host, worker, f"acme/lib/{REFS}")
    shown = reply.body + str(reply.headers).encode()
    assert reply.body.startswith(b"x[redacted:")
    assert SECRET.encode() not in shown
    assert basic[24:-8] not in shown


def test_sixteen_reads_at_once_are_answered(host: Api, process: RunningBroker, worker: int) -> None:
    """A request without a body, or with a small one of unknown size, needs little memory."""
    host.answer = answer = Answer(b"00", b"00")
    answer.go_on.clear()
    place = f"/git/{host.url.removeprefix('http://')}/acme/lib"
    connections = [process.connection(worker) for _ in range(16)]
    for number, connection in enumerate(connections):
        if number % 2:
            connection.request("GET", f"{place}/{REFS}", headers=BEARER)
        else:
            # Bodies of an iterator are sent in chunks, without their size.
            connection.request("POST", f"{place}/git-upload-pack", iter([b"0000"]), BEARER)
        # None of the answers has ended.
        response = connection.getresponse()
        assert (number, response.status, response.read(2)) == (number, 200, b"00")
    answer.go_on.set()
    for connection in connections:
        connection.close()


def test_redirects_are_not_followed(host: Api, process: RunningBroker, worker: int) -> None:
    host.answer = Answer(status=301, headers={"Location": f"{host.url}/acme/other"})
    reply = ask(process, host, worker, f"acme/lib/{REFS}")
    assert (reply.status, reply.code) == (502, "upstream_redirect")
    assert len(host.seen) == 1


@pytest.mark.parametrize(("method", "end"), [("GET", REFS), ("POST", "git-upload-pack")])
def test_redirect_to_the_name_with_git_is_followed_once(
    host: Api, process: RunningBroker, worker: int, method: str, end: str
) -> None:
    """GitLab redirects `acme/lib` to `acme/lib.git`, which is the same repository."""
    renamed = f"{host.url}/acme/lib.git/{end}"
    answers = iter([Answer(status=301, headers={"Location": renamed}), Answer(b"refs")])
    host.answer = lambda _: next(answers)
    reply = ask(process, host, worker, f"acme/lib/{end}", method=method)
    assert (reply.status, reply.body) == (200, b"refs")
    first, second = ((line.partition("?")[0], headers) for line, headers, _ in host.seen)
    path = end.partition("?")[0]
    assert first[0].endswith(f"/acme/lib/{path}")
    assert second[0].endswith(f"/acme/lib.git/{path}")
    assert first[1]["Authorization"] == second[1]["Authorization"]
    host.answer = Answer(status=301, headers={"Location": renamed})
    reply = ask(process, host, worker, f"acme/lib/{end}", method=method)
    assert reply.code == "upstream_redirect"
    assert len(host.seen) == 4


def test_settings_of_git_lead_to_the_broker() -> None:
    listed = (
        Repository(url="https://git.example/acme/lib", key="a:b"),
        Repository(url="http://own.example:8080/team/*", key="a:b"),
    )
    assert list(git_settings(listed, "http://broker.internal:8080", "t")) == [
        ("url.http://broker.internal:8080/git/git.example/acme/lib.insteadOf", spelling)
        for spelling in (
            "https://git.example/acme/lib",
            "ssh://git@git.example/acme/lib",
            "git@git.example:acme/lib",
        )
    ] + [
        ("url.http://broker.internal:8080/git/own.example:8080/team/.insteadOf", spelling)
        for spelling in (
            "http://own.example:8080/team/",
            "ssh://git@own.example/team/",
            "git@own.example:team/",
        )
    ] + [("http.http://broker.internal:8080/git/.extraHeader", "Authorization: Bearer t")]


def test_git_reads_the_settings_from_a_file(tmp_path: Path) -> None:
    listed = (Repository(url="https://git.example/acme/lib", key="a:b"),)
    settings = list(git_settings(listed, "http://broker.internal:8080", 't"\\'))
    (tmp_path / "settings").write_text(git_configuration(settings))
    found = git(tmp_path, "config", "--file", "settings", "--null", "--list").split("\0")
    pairs = [tuple(entry.split("\n", 1)) for entry in found if entry]
    # git shows sections and names in lower case.
    assert pairs == [("include.path", "/etc/gitconfig")] + [
        (name.replace(".insteadOf", ".insteadof").replace(".extraHeader", ".extraheader"), value)
        for name, value in settings
    ]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://git.example/acme/lib=T", "https://git.example/acme/lib"),
        ("https://GIT.example/acme/lib.git/=T", "https://git.example/acme/lib"),
        ("http://127.0.0.1:8080/a/*=T", "http://127.0.0.1:8080/a/*"),
        ("https://git.example/acme/lib", None),
        ("https://git.example/acme/lib=ghp-value", None),
        ("https://git.example/*=T", None),
        ("https://git.example/=T", None),
        ("https://git.example/a*=T", None),
        ("https://git.example/a/../b=T", None),
        ("https://user:secret@git.example/a=T", None),
        ("https://git.example/a?x=T", None),
        ("ssh://git@git.example/a=T", None),
        ("git@git.example:a/b=T", None),
        ("https://git.example/a\n/b=T", None),
    ],
)
def test_entries_name_a_repository_and_a_variable(text: str, url: str | None) -> None:
    found = PrivateRepository.parse(text)
    assert (found and (found.url, found.variable)) == (url and (url, "T"))


def test_token_may_contain_its_user() -> None:
    listed = [("https://git.example/a", "A"), ("https://git.example/b", "B")]
    found = readable_repositories(listed, {"A": "token-of-a", "B": "ann:token-of-b\n"})
    assert [one.key for one in found] == ["x-access-token:token-of-a", "ann:token-of-b"]
    for given in ({}, {"A": ""}, {"A": "short"}):
        with raises("git-token.missing", "`A`"):
            list(readable_repositories(listed, given))


def test_requests_have_one_meaning() -> None:
    path = "/git/git.example/a/b/info/refs"
    assert find_git_call("GET", path, {"service": "git-upload-pack"}) is not None
    assert find_git_call("POST", path, {"service": "git-upload-pack"}) is None
    assert find_git_call("GET", "/git/git.example/a/b/git-upload-pack", {}) is None
    assert find_git_call("POST", "/git//a/b/git-upload-pack", {}) is None
