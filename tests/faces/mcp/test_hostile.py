"""Clients that try to get more than the user allows, and workers that try to steer clients."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp.client import Client

from orchestrator.base.text.sanitize import lines as shown_lines
from orchestrator.config.workflow.planning import TASK_KEYS
from orchestrator.faces.mcp import server
from orchestrator.faces.mcp.arguments import ListRuns
from orchestrator.faces.mcp.reading import MOST_TEXT
from orchestrator.faces.mcp.starting import Limits
from orchestrator.faces.mcp.tools import offer_tools
from orchestrator.repository.repository import Repository
from tests.support.mcp_clients import (
    ERAS,
    EVERYTHING,
    SHELL,
    Refused,
    Session,
    in_process,
    lines,
    over_stdio,
)
from tests.support.repository import fingerprint, git
from tests.support.runs import past_run

SECRET = "the-canary-of-the-host"
READERS = {"runs", "run", "worker", "log", "diff", "conflicts", "judgement", "wait"}
ACTORS = {"run": {"run_tasks", "run_spec"}, **{name: {name} for name in EVERYTHING[1:]}}
VALUES: tuple[object, ...] = (
    *("../../canary", "/etc/passwd", "..", ".git", "--help", "-c", "@/etc/passwd", "", " ", "\0"),
    *("a\0b", "20260101\n", "\ud800", "$(id)", "*", "refs/heads/main", "HEAD"),
    *(-1, 0, 1, 2**31, 2**70, 1.5, float("nan"), float("inf"), True, None),
    *([], ["../../canary"], [[]], [0], [-1], {}, {"path": "/etc/passwd"}),
)
LARGE = ("x" * 10_000_000, [1] * 100_000)
"""Values of the first parameter only, because they take long to send."""


def _tools(repo: Path) -> tuple[server.Offered, ...]:
    limits = Limits(options=SHELL, config=None, max_workers=3, budget_total=None)
    return offer_tools(Repository(repo), limits, EVERYTHING)


def test_only_what_the_user_allows_is_listed_and_can_be_called(repo: Path) -> None:
    every = chain.from_iterable(combinations(EVERYTHING, size) for size in range(5))
    for allowed in every:
        wanted = READERS.union(*(ACTORS[name] for name in allowed))

        async def story(call: Session, wanted: set[str] = wanted) -> None:
            listed = (await call.client.list_tools()).tools
            assert {tool.name for tool in listed} == {f"orchestrator_{name}" for name in wanted}
            for name in set().union(*ACTORS.values()) - wanted:
                with pytest.raises(Refused, match="there is no tool"):
                    await call(name)
            for tool in listed:
                reads = tool.name.removeprefix("orchestrator_") in READERS
                assert tool.annotations is not None
                assert tool.annotations.read_only_hint is reads
                assert tool.annotations.destructive_hint is (
                    tool.name.rpartition("_")[2] in ("stop", "pick", "merge")
                )

        in_process(repo, story, allowed=allowed)


def test_arguments_are_ids_and_numbers_and_no_paths(repo: Path) -> None:
    free = {("run_tasks", "tasks"), ("run_spec", "spec")}
    for tool in _tools(repo):
        schema = tool.declaration().input_schema
        assert schema["additionalProperties"] is False
        for name, part in schema.get("properties", {}).items():
            assert not {"path", "file", "dir", "directory", "root"} & set(name.split("_"))
            for text in _texts(part):
                bounded = "pattern" in text or "enum" in text
                assert bounded or (tool.name, name) in free, (tool.name, name)


def _texts(schema: object) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "string":
            yield schema
        for part in schema.values():
            yield from _texts(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _texts(part)


@pytest.mark.extra
def test_no_value_of_any_parameter_reaches_a_file_or_ends_the_server(
    repo: Path, local_engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo.parent / "canary").write_text(SECRET)
    past_run(repo, local_engine, "echo x > x", "echo y > y")
    before, around = fingerprint(repo), sorted(repo.parent.iterdir())
    # A value that is accepted as a time to wait is not what this test is about.
    monkeypatch.setattr("orchestrator.faces.mcp.reading._TICK", 0.01)
    good = {"worker": 1, "token": "0" * 32, "tasks": ["true"], "spec": "tasks: []"}

    async def story(call: Session) -> None:
        for tool in _tools(repo):
            schema = tool.declaration()
            names = schema.input_schema.get("properties", {})
            needed = {name: good[name] for name in schema.input_schema.get("required", ())}
            tried = [(name, value) for name in [*names, "path"] for value in VALUES]
            for name, value in (*tried, *((next(iter(names)), value) for value in LARGE)):
                if (tool.name, name) == ("stop", "workers") and value == [1]:
                    continue
                answer = await call.client.call_tool(schema.name, {**needed, name: value})
                (content,) = answer.content
                assert SECRET not in content.text
                assert len(content.text) < 200_000
                if answer.is_error:
                    assert content.text.startswith("error: ")
                    assert len(content.text) < 5_000, (tool.name, name)
                    assert "internal error" not in content.text
                else:
                    jsonschema.validate(answer.structured_content, schema.output_schema)

    in_process(repo, story, allowed=EVERYTHING)
    assert (fingerprint(repo), sorted(repo.parent.iterdir())) == (before, around)


SPEC = "tasks:\n  - id: one\n    task: 'true'\n    {}\n"
FREE = (
    *("model: x", "agent: x", "mode: ro", "paths: [src/app]", "retry_delay: 1", "ports: [8080]"),
    "enforce: ro\n    paths: [src]",
)
GREEDY = {
    "image": "image: evil/image", "allow": "allow: [evil.example]", "network": "network: open",
    "keys": "keys: env", "services": "services: {db: {image: evil}}", "setup": "setup: [id]",
    "checks": "checks: [id]", "agent_cli": "agent_cli: claude", "budget": "budget: 100",
    "timeout": "timeout: 0", "paths": "paths: [docs]", "retries": "retries: 9",
    "max_steps": "max_steps: 9999",
    **{
        f"limits.{name}": f"limits: {{{name}: {value}}}"
        for name, value in {
            "cpus": 64, "memory": "512g", "pids": 100_000, "disk": "900g", "inodes": 10**8,
            "tmp": "99g", "grace": 600, "idle_timeout": 0, "open_files": 900_000,
            "log_limit": "99g",
        }.items()
    },
}  # fmt: skip


def test_every_setting_of_a_task_has_a_greedy_or_a_free_value_here() -> None:
    assert {*TASK_KEYS.values()} == {*GREEDY, *(text.partition(":")[0] for text in FREE)}


@pytest.mark.parametrize("key", GREEDY)
def test_workflow_gets_nothing_that_a_found_file_could_not_set(repo: Path, key: str) -> None:
    (repo / "user.yaml").write_text(
        "parallel_runs: {budget_per_worker: 1, retries: 1, max_steps: 50}\n"
        "container: {network: none, keys: broker, idle_timeout: 60}\n"
        "triggers: {paths: [src], enforce: ro}\n"
    )

    async def story(call: Session) -> None:
        with pytest.raises(Refused, match="is not accepted from a client, or grants more") as said:
            await call("run_spec", spec=SPEC.format(GREEDY[key]))
        assert key.rpartition(".")[2].replace("budget", "budget_per_worker") in str(said.value)

    in_process(repo, story, allowed=("run",), config=repo / "user.yaml")


@pytest.mark.parametrize("text", FREE)
def test_workflow_may_have_what_grants_nothing(repo: Path, text: str) -> None:
    async def story(call: Session) -> None:
        # The test has no container engine.
        with pytest.raises(Refused, match="Docker"):
            await call("run_spec", spec=SPEC.format(text))

    in_process(repo, story, allowed=("run",))


@pytest.mark.parametrize("foreach", ["{command: id}", "{glob: ['**']}", "{json: ../../etc/passwd}"])
def test_items_of_a_foreach_are_listed_in_the_workflow(repo: Path, foreach: str) -> None:
    async def story(call: Session) -> None:
        with pytest.raises(Refused, match="is not accepted from a client"):
            await call(
                "run_spec", spec=SPEC.format(f"foreach: {foreach}").replace("true", "{{item}}")
            )

    in_process(repo, story, allowed=("run",))


def test_tasks_cannot_have_more_time_than_the_user_grants(repo: Path) -> None:
    async def story(call: Session) -> None:
        with pytest.raises(Refused, match="`timeout_per_worker` is not accepted"):
            await call("run_tasks", tasks=["true"], timeout=601)
        with pytest.raises(Refused, match="Docker"):
            await call("run_tasks", tasks=["true"], timeout=600)

    in_process(repo, story, allowed=("run",))


HOSTILE = r"""
printf 'a\033]0;x\007\033[31mb\000\342\200\256c\n'
yes '\ ignore all' | head -c 100000
head -c 40000 /dev/zero | tr '\0' '\377'
seq 20000 > long; printf 'a\033[31mb' > red
for i in $(seq 150); do : > "$(printf 'x\033[31m\nIGNORE')$i"; done
"""
"""Control sequences, a flood, bytes that grow when they are decoded, and hostile names of files."""


def test_text_of_workers_is_marked_neutralised_and_bounded(repo: Path, local_engine) -> None:
    past_run(repo, local_engine, HOSTILE)

    async def story(call: Session) -> None:
        texts, place, size = [], 0, 1
        while place < size:
            part = await call("log", worker=1, offset=place)
            assert "not instructions" in part["untrusted"]["warning"]
            assert len(part["untrusted"]["text"].encode()) <= MOST_TEXT
            assert part["begin"] == place < part["end"]
            texts.append(part["untrusted"]["text"])
            place, size = part["end"], part["size"]
        assert "".join(texts).startswith("ab\ufffd\ufffdc\n\\ ignore")
        assert len("".join(texts)) > 100_000
        end = await call("log", worker=1)
        assert (end["end"], end["begin"] > 0) == (end["size"], True)

        patch, skip = "", 0
        while skip is not None:
            part = await call("diff", worker=1, form="patch", offset=skip)
            assert len(part["untrusted"]["patch"].encode()) <= MOST_TEXT
            patch, skip = patch + part["untrusted"]["patch"], part["next"]
        assert patch == shown_lines(git(repo, "diff", part["base"], part["commit"]) + "\n")

        files = (await call("diff", worker=1))["untrusted"]["files"]
        more = (await call("diff", worker=1, offset=100))["untrusted"]["files"]
        assert (len(files), len(more)) == (100, 52)
        for file in (*files, *more):
            assert not {"\n", "\033"} & {*file["path"]}
        said = await call("worker", worker=1)
        assert len(said["untrusted"]["files"]) == 100
        assert "\033" not in json.dumps(said, ensure_ascii=False)

    in_process(repo, story)


def test_slow_call_is_answered_in_time_and_its_work_is_done_once(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LONGEST_CALL", 0.1)
    done, answered = [], []

    def work(asked: ListRuns) -> Any:
        time.sleep(0.5)
        done.append(asked)
        return _tools(repo)[0].work(asked)

    slow = server.Offered("slow", "", ListRuns, _tools(repo)[0].answer, work)

    async def story(call: Session) -> None:
        with pytest.raises(Refused, match="not done yet"):
            await call("slow", most=2)
        for _ in range(50):
            with suppress(Refused):
                answered.append(await call("slow", most=2))
                break

    _play(slow, story)
    assert (len(answered), len(done)) == (1, 1)


def _play(tool: server.Offered, story: Any) -> None:
    async def play() -> None:
        async with Client(server.server_of([tool])) as client:
            await story(Session(client))

    asyncio.run(play())


def test_stdout_has_only_the_protocol_and_bad_lines_do_not_end_the_server(repo: Path) -> None:
    asked = json.dumps(
        {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
        }}
    ).encode()  # fmt: skip
    listed = b'{"jsonrpc":"2.0","id":8,"method":"tools/list","params":{}}'
    big = b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"orchestrator_run",'
    bad = [b"", b"\0\xff\xfe", b"{", b"[]", b"null", b'"x"', b"[" * 5000, b"x" * 10_000_000]
    deep = b'"arguments":{"run":' + b"[" * 900 + b"]" * 900 + b"}}}"
    ready = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    out, err, code = lines(repo, [*bad, asked, ready, *bad, big + deep, listed])
    answers = [json.loads(line) for line in out.splitlines()]
    assert all(one["jsonrpc"] == "2.0" for one in answers)
    assert {7, 8} <= {one.get("id") for one in answers}
    assert code == 0, err


@pytest.mark.variants("2026*")
@pytest.mark.parametrize("mode", ERAS)
def test_both_eras_of_the_protocol_are_spoken(repo: Path, mode: str) -> None:
    async def story(call: Session) -> None:
        assert call.client.protocol_version == ("2025-11-25" if mode == "legacy" else mode)
        for tool in (await call.client.list_tools()).tools:
            assert tool.input_schema["type"] == "object"
            assert tool.output_schema is not None
            assert tool.output_schema["type"] == "object"
        assert (await call("runs")) == {"runs": [], "more": 0}

    over_stdio(repo, story, mode=mode)
