"""The contract of places. A new kind of place is a new parameter of the fixture `places`.

It holds on each engine that places support: `DOCKER_HOST` names the one under test.
"""

import hashlib
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest

from orchestrator.base.errors import EngineError, EngineUnavailableError, UnsupportedError
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.docker.volume_place import VolumePlace
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import ROLE
from orchestrator.engine.interface.spec import BindMount, ContainerSpec
from orchestrator.engine.places.host_place import HostPlace
from orchestrator.engine.places.place import Part, Place, PlaceSpec, Start, Step, StepLimits
from tests.support.containers import USER, finish
from tests.support.cut_socket import CutSocket
from tests.support.dying_client import order_and_die
from tests.support.errors import raises

pytestmark = pytest.mark.docker
LIMITS = StepLimits(timeout=120, grace=5)
Labels = Mapping[str, str]
NAP = Start(command=("sleep", "300"))


class Places:
    """Describes and opens places, and removes them at the end of the test."""

    def __init__(
        self, kind: str, engine: DockerEngine, client: docker.APIClient, labels: Labels, root: Path
    ) -> None:
        self.client, self.labels, self._root = client, labels, root
        self._kind, self._engine = kind, engine
        self.dialect = engine._dialect

    def directory(self, name: str, **files: str) -> Path:
        """Return a new directory that belongs to the steps' user, with some files."""
        path = self._root / name
        path.mkdir()
        for file, text in files.items():
            (path / file).write_text(text)
        for made in (path, *path.iterdir()):
            os.chown(made, USER, USER)
        return path

    def spec(
        self,
        *parts: Part,
        after: Mapping[str, str] | None = None,
        command: tuple[str, ...] = (),
        limits: StepLimits = LIMITS,
        memory: int = 256 * 1024**2,
        **rest: Any,
    ) -> PlaceSpec:
        """Describe a place with the step `agent`, and steps after it that have a command."""
        name = f"orchestrator-test-{secrets.token_hex(6)}"

        def step(called: str, following: str | None, words: tuple[str, ...]) -> Step:
            spec = ContainerSpec(
                name=f"{name}-{called}",
                image=BASE_IMAGE,
                command=words,
                user=f"{USER}:{USER}",
                workdir="/",
                labels={**self.labels, ROLE: called},
                memory=memory,
            )
            own = limits if following is None else StepLimits(timeout=60, grace=5)
            return Step(name=called, spec=spec, limits=own, after=following)

        steps = [step("agent", None, ())]
        steps += [step(called, other, command) for called, other in (after or {}).items()]
        labels = {**self.labels, ROLE: "worker"}
        return PlaceSpec(name=name, labels=labels, parts=parts, steps=tuple(steps), **rest)

    def open(self, spec: PlaceSpec, client: docker.APIClient | None = None) -> Place:
        place: Place = HostPlace(self._engine, spec)
        if self._kind == "volumes":
            place = VolumePlace(client or self.client, spec, dialect=self.dialect)
        place.put(spec.parts)
        return place

    def order_and_die(
        self, spec: PlaceSpec, start: Start, number: int
    ) -> "subprocess.Popen[bytes]":
        """Let another process order the step `agent` and send itself a signal."""
        return order_and_die(spec, "agent", start, number)

    def await_end(self, spec: PlaceSpec) -> None:
        """Wait until a place has ended itself."""
        assert self.client.wait(f"{spec.name}-porter", timeout=60)["StatusCode"] == 3

    def run(self, place: Place, *command: str, **env: str) -> tuple[Any, bytes, bytes]:
        """Run the step `agent` to its end."""
        step = place.order("agent", Start(command=command, env=env))
        step.start()
        return finish(step)


def part(
    name: str, source: Path, target: str, *seen_by: str, read_only: bool = False, **rest: Any
) -> Part:
    mount = BindMount(source=source, target=target, read_only=read_only)
    return Part(name=name, mount=mount, seen_by=frozenset(seen_by or {"agent"}), **rest)


@pytest.fixture(params=["volumes", pytest.param("mounts", marks=pytest.mark.extra)])
def every(
    request: pytest.FixtureRequest,
    docker_engine: DockerEngine,
    client: docker.APIClient,
    labels: Labels,
    tmp_path: Path,
) -> Iterator[Places]:
    """Return what opens places of each kind in turn; at the end nothing of them is left."""
    yield from _opened(request.param, docker_engine, client, labels, tmp_path)


@pytest.fixture
def places(
    docker_engine: DockerEngine, client: docker.APIClient, labels: Labels, tmp_path: Path
) -> Iterator[Places]:
    """Return what opens places that need no client: others leave their limits to it."""
    yield from _opened("volumes", docker_engine, client, labels, tmp_path)


def _opened(kind: str, engine: DockerEngine, *rest: Any) -> Iterator[Places]:
    places = Places(kind, engine, *rest)
    yield places
    left = engine.leftovers(places.labels)
    for wanted in ("container", "volume", "network"):
        for leftover in left:
            if leftover.kind == wanted:
                engine.remove(leftover)
    assert engine.leftovers(places.labels) == []


@pytest.fixture
def cut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CutSocket]:
    """Return a socket to the engine whose connections break when a test says so."""
    with closing(CutSocket(tmp_path_factory.mktemp("cut") / "s")) as made:
        yield made


LIST = """cd "$0" && find . -printf '%P %m %y %l\\0' | LC_ALL=C sort -z | sha256sum
find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"""


@pytest.mark.variants("*written-odd")
@pytest.mark.parametrize("kind", ["odd", "10000 files", "300 MB"])
@pytest.mark.parametrize("read_only", [True, False], ids=["read", "written"])
def test_a_part_arrives_byte_for_byte(every: Places, kind: str, read_only: bool) -> None:
    tree = every.directory("tree")
    if kind == "odd":
        (tree / "empty").mkdir(mode=0o700)
        (tree / ("n" * 200)).mkdir()
        (tree / ("n" * 200) / ("m" * 200)).write_bytes(b"deep")
        (tree / "nothing").touch()
        (tree / "run").write_bytes(b"#!/bin/sh\n")
        (tree / "run").chmod(0o751)
        (tree / "link").symlink_to("../../etc/passwd")
        Path(os.fsdecode(os.fsencode(tree) + b"/odd \xff\n name")).write_bytes(b"odd")
    elif kind == "10000 files":
        for number in range(10_000):
            (tree / f"f{number}").write_text(str(number))
    else:
        with (tree / "large").open("wb") as large:
            for _ in range(300):
                large.write(os.urandom(1024**2))
    for path in (tree, *tree.rglob("*")):
        os.chown(path, USER, USER, follow_symlinks=False)
    place = every.open(every.spec(part("tree", tree, "/tree", read_only=read_only)))
    status, inside, problems = every.run(place, "sh", "-c", LIST, "/tree")
    assert (status.exit_code, problems) == (0, b"")
    outside = subprocess.run(["sh", "-c", LIST, str(tree)], check=True, capture_output=True)
    assert inside == outside.stdout


@pytest.mark.variants("copied")
@pytest.mark.parametrize("read_only", [True, False], ids=["read", "copied"])
def test_equal_digests_are_sent_once(places: Places, cut: CutSocket, read_only: bool) -> None:
    tree = places.directory("tree", big="x" * 3_000_000)

    def opened(digest: str) -> int:
        before = cut.up
        described = part("tree", tree, "/tree", read_only=read_only, digest=digest)
        place = places.open(places.spec(described), cut.client())
        status, said, _ = places.run(place, "sh", "-c", "wc -c < /tree/big; touch /tree/new")
        assert said == b"3000000\n"
        assert (status.exit_code == 0) is not read_only
        return cut.up - before

    assert opened("one") > 3_000_000
    assert opened("one") < 1_000_000
    assert opened("another") > 3_000_000


@pytest.mark.extra
@pytest.mark.variants("90")
@pytest.mark.parametrize("percent", range(10, 100, 10))
def test_interrupted_put_is_repeated(places: Places, cut: CutSocket, percent: int) -> None:
    tree = places.directory("tree", **{f"f{n}": f"{n}" * 20_000 for n in range(100)})
    spec = places.spec(part("tree", tree, "/tree", digest=str(percent)), part("own", tree, "/own"))
    place = VolumePlace(cut.client(), spec, dialect=places.dialect)
    cut.cut_up = 39_000 * percent
    with pytest.raises(EngineUnavailableError):
        place.put(spec.parts)
    cut.cut_up = None
    place.put(spec.parts)
    task = "cat /tree/* | sha256sum; cat /own/* | sha256sum; ls /tree /own | wc -l"
    content = b"".join(file.read_bytes() for file in sorted(tree.iterdir()))
    digest = hashlib.sha256(content).hexdigest()
    said = places.run(place, "sh", "-c", task)[1].decode().split()
    assert (said[0], said[2], said[4]) == (digest, digest, "203")


@pytest.mark.extra
def test_written_files_are_kept_and_others_brought_up_to_date(places: Places) -> None:
    own, given = places.directory("own", a="old"), places.directory("given", b="old", c="old")
    spec = places.spec(part("own", own, "/own"), part("given", given, "/given", read_only=True))
    place = places.open(spec)
    places.run(place, "sh", "-c", "echo mine > /own/a")
    (own / "a").write_text("new")
    (given / "b").write_text("newer")
    (given / "c").unlink()
    place.put(spec.parts)
    step = place.step("agent")
    assert step is not None
    step.remove()
    assert places.run(place, "sh", "-c", "cat /own/a /given/b; ls /given")[1] == b"mine\nnewerb\n"


def test_a_step_sees_only_its_parts(places: Places) -> None:
    given, other = places.directory("given", a="a"), places.directory("other", b="sesame")
    spec = places.spec(
        part("given", given, "/given", read_only=True),
        part("other", other, "/other", "harvest"),
        after={"harvest": "agent"},
        command=("cat", "/other/b"),
    )
    place = places.open(spec)
    # The pattern does not match the command itself, which the step may still see.
    hidden = "ls /other /parts /state /channels; grep -rs 'sesam[e]' /run"
    task = f"{hidden}; touch /given/new; rm /given/a; exit 0"
    status, said, problems = places.run(place, "sh", "-c", task)
    assert (status.exit_code, said) == (0, b"")
    assert problems.count(b"Read-only file system") == 2
    assert problems.count(b"No such file") == 4
    harvest = place.step("harvest")
    assert harvest is not None
    assert finish(harvest)[1] == b"sesame"


@pytest.mark.extra
@pytest.mark.parametrize("in_memory", [False, True], ids=["on disk", "in memory"])
def test_a_part_may_be_a_file(every: Places, in_memory: bool) -> None:
    tree, other = every.directory("tree", a="a"), every.directory("other", pointer="gitdir: /git")
    place = every.open(
        every.spec(
            part("tree", tree, "/tree"),
            part("file", other / "pointer", "/tree/.git", read_only=True, in_memory=in_memory),
        )
    )
    task = "cat /tree/a /tree/.git; ls -A /tree | wc -l; echo x > /tree/.git; rm /tree/.git"
    _, said, problems = every.run(place, "sh", "-c", task)
    assert said == b"agitdir: /git2\n"
    assert problems.count(b"Read-only file system") == 1
    assert problems.count(b"busy") == 1


@pytest.mark.extra
def test_a_second_order_is_refused_until_the_step_is_removed(every: Places) -> None:
    own = every.directory("own")
    place = every.open(every.spec(part("own", own, "/own")))
    task = ("sh", "-c", "echo run >> /own/runs; cat /own/runs")
    step = place.order("agent", Start(command=task))
    with pytest.raises(EngineError):
        place.order("agent", Start(command=task))
    step.start()
    step.start()
    assert finish(step)[1] == b"run\n"
    with pytest.raises(EngineError):
        place.order("agent", Start(command=task))
    step.remove()
    assert every.run(place, *task)[1] == b"run\nrun\n"


def test_a_step_whose_order_never_came_is_ordered_again(places: Places) -> None:
    own = places.directory("own")
    spec = places.spec(part("own", own, "/own"))
    place = places.open(spec)
    assert isinstance(place, VolumePlace)
    # As a client that dies between the creation of the container and its order.
    place._create(spec.step("agent"), NAP)
    again = places.open(spec)
    assert again.step("agent") is None
    assert places.run(again, "sh", "-c", "echo ran >> /own/runs; cat /own/runs")[1] == b"ran\n"
    assert again.step("agent") is not None


@pytest.mark.extra
def test_no_step_runs_before_its_start(places: Places) -> None:
    own = places.directory("own")
    spec = places.spec(part("own", own, "/own"), after={"harvest": "agent"}, command=("ls", "/own"))
    place = places.open(spec)
    step = place.order("agent", Start(command=("touch", "/own/ran")))
    time.sleep(1)
    assert list(place.changed("own", most=9, seconds=9)) == []
    assert place.journal(0) == []
    # Another process starts what this one ordered.
    again = places.open(spec).step("agent")
    assert again is not None
    again.start()
    assert finish(again)[0].exit_code == 0
    assert list(place.changed("own", most=9, seconds=9)) == ["ran"]
    assert step.wait(60).exit_code == 0


@pytest.mark.extra
def test_a_place_without_an_order_ends_itself(places: Places) -> None:
    spec = places.spec(start_within=1.0)
    place = places.open(spec)
    places.await_end(spec)
    with pytest.raises(EngineError):
        place.order("agent", NAP)
    place.remove()


class DyingClient(docker.APIClient):
    """A client that dies before it starts a container."""

    def start(self, *_: Any, **__: Any) -> None:
        raise KeyboardInterrupt


@pytest.mark.extra
def test_a_place_that_was_half_opened_is_opened_again(places: Places) -> None:
    own = places.directory("own", a="a")
    spec = places.spec(part("own", own, "/own"))
    with pytest.raises(KeyboardInterrupt), closing(DyingClient(version="auto")) as client:
        places.open(spec, client)
    assert places.run(places.open(spec), "cat", "/own/a")[1] == b"a"


def test_output_is_complete_and_its_streams_are_apart(every: Places) -> None:
    place = every.open(every.spec())
    task = "printf first; printf other >&2; head -c 5000000 /dev/zero; printf last"
    status, stdout, stderr = every.run(place, "sh", "-c", f"{task}; exit 7")
    assert (status.exit_code, status.oom_killed, stderr) == (7, False, b"other")
    assert stdout == b"first" + bytes(5_000_000) + b"last"


@pytest.mark.extra
def test_a_line_of_100_mb_is_complete(places: Places) -> None:
    place = places.open(places.spec())
    step = place.order("agent", Start(command=("head", "-c", "100000000", "/dev/zero")))
    step.start()
    assert sum(chunk.data.count(0) for chunk in step.logs()) == 10**8


@pytest.mark.extra
@pytest.mark.variants("500000")
@pytest.mark.parametrize("every", [500_000, 50_000])
def test_output_is_resumed_at_the_same_byte(places: Places, cut: CutSocket, every: int) -> None:
    place = places.open(places.spec(), cut.client())
    task = "seq 1 800000 | head -c 5000000; seq 1 9 >&2"
    step = place.order("agent", Start(command=("sh", "-c", task)))
    step.start()
    cut.cut_down = every
    said = {"stdout": b"", "stderr": b""}
    for chunk in step.logs():
        said[chunk.stream] += chunk.data
    cut.cut_down = None
    expected = "".join(f"{n}\n" for n in range(1, 800_001)).encode()[:5_000_000]
    assert said == {"stdout": expected, "stderr": b"1\n2\n3\n4\n5\n6\n7\n8\n9\n"}
    rest = b"".join(c.data for c in step.logs({"stdout": 4_999_990, "stderr": 18}))
    assert rest == expected[-10:]


DEFIANT = ("sh", "-c", "trap '' TERM; echo up > /own/up; while :; do sleep 300; done")


@pytest.mark.extra
@pytest.mark.variants("SIGKILL")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["SIGKILL", "SIGSTOP"])
def test_deadline_and_following_steps_need_no_client(places: Places, number: int) -> None:
    own = places.directory("own")
    spec = places.spec(
        part("own", own, "/own", "agent", "teardown", "harvest"),
        limits=StepLimits(timeout=2.0, grace=1.0),
        after={"teardown": "agent", "harvest": "teardown"},
        command=("sh", "-c", "echo packed >> /own/up"),
    )
    died = places.order_and_die(spec, Start(command=DEFIANT), number)
    try:
        place = places.open(spec)
        _await(lambda: len(place.journal(0)) == 8)
        steps = [(entry.step, entry.event, entry.reason) for entry in place.journal(0)]
        assert steps == [
            ("agent", "started", None),
            ("agent", "stopping", "timeout"),
            ("agent", "stopping", "timeout"),
            ("agent", "ended", "timeout"),
            ("teardown", "started", None),
            ("teardown", "ended", None),
            ("harvest", "started", None),
            ("harvest", "ended", None),
        ]
        started, stopping, _, ended = (entry.age for entry in place.journal(0)[:4])
        assert 2.0 <= stopping - started < 10
        assert 3.0 <= ended - started < 20
        step = place.step("agent")
        assert step is not None
        assert step.wait(60).exit_code == 137
        into = places.directory("into")
        place.take("own", into, limit=1000)
        assert (into / "up").read_text() == "up\npacked\npacked\n"
    finally:
        with suppress(ProcessLookupError):
            os.kill(died.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(died.pid, 0)
        died.returncode = 0


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


TRACE = """import ctypes, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(ctypes.CDLL(None).ptrace(16, 1, 0, 0), flush=True)  # PTRACE_ATTACH
print(open("/proc/1/mem", "r+b", 0), flush=True)
"""


def test_no_step_traces_what_stops_it(places: Places) -> None:
    place = places.open(places.spec(limits=StepLimits(timeout=3.0, grace=0.5)))
    status, said, problems = places.run(place, "python3", "-c", TRACE)
    assert (status.exit_code, said) == (1, b"-1\n")
    assert b"Permission denied: '/proc/1/mem'" in problems


@pytest.mark.extra
@pytest.mark.variants("disk")
@pytest.mark.parametrize(
    ("limit", "task"),
    [
        ({"disk": 5_000_000},
         "mkdir -m 0700 /own/d; head -c 9000000 /dev/zero > /own/d/f; chmod 0 /own/d; sleep 300"),
        ({"inodes": 50}, "for n in $(seq 200); do : > /own/$n; done; sleep 300"),
    ],
    ids=["disk", "inodes"],
)  # fmt: skip
def test_disk_limit_needs_no_client(places: Places, limit: dict[str, int], task: str) -> None:
    own = places.directory("own")
    limits = StepLimits(timeout=120, grace=0.5, limited=("own",), **limit)
    spec = places.spec(part("own", own, "/own"), limits=limits)
    died = places.order_and_die(spec, Start(command=("sh", "-c", task)), signal.SIGKILL)
    died.returncode = 0
    place = places.open(spec)
    _await(lambda: any(entry.event == "ended" for entry in place.journal(0)))
    ended = place.journal(0)[-1]
    assert ended.reason == next(iter(limit))
    assert ended.age < 30
    assert place.usage(["own"], most_files=1000).files >= 2


@pytest.mark.extra
@pytest.mark.variants("flip")
@pytest.mark.parametrize("percent", [*range(10, 100, 10), "flip"])
def test_what_is_taken_is_complete_and_unaltered(
    places: Places, cut: CutSocket, percent: int | str
) -> None:
    own = places.directory("own")
    place = places.open(places.spec(part("own", own, "/own")), cut.client())
    task = "cd /own; seq 1 300000 > a; mkdir d; echo deep > d/b; ln -s /etc l; mkfifo p"
    places.run(place, "sh", "-c", task)
    if percent == "flip":
        cut.flip = b"\n150000\n"
        with raises("place.data-altered"):
            place.take("own", places.directory("flipped"), limit=10**7)
        assert cut.flip == b""
    else:
        cut.cut_down = 20_000 * int(percent)
    into = places.directory("into")
    place.take("own", into, limit=10**7)
    assert (into / "a").read_text() == "".join(f"{n}\n" for n in range(1, 300_001))
    assert (into / "d" / "b").read_text() == "deep\n"
    assert {path.name for path in into.iterdir()} == {"a", "d"}


_DEEP = "import os, sys; [(os.mkdir(sys.argv[1]), os.chdir(sys.argv[1])) for _ in range(30)]"
HOSTILE = {
    "sparse giant": "truncate -s 1T /own/giant",
    "very many": "cd /own; seq 1 300000 | xargs -n 5000 touch",
    "long path": f"cd /own; python3 -c '{_DEEP}' $0",
}


@pytest.mark.extra
@pytest.mark.variants("sparse giant")
@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_taken_is_an_error_soon(places: Places, name: str) -> None:
    own = places.directory("own")
    place = places.open(places.spec(part("own", own, "/own")))
    status, _, problems = places.run(place, "sh", "-c", HOSTILE[name], "n" * 200)
    assert (status.exit_code, problems) == (0, b"")
    into = places.directory("into")
    begun = time.monotonic()
    with pytest.raises(EngineError):
        place.take("own", into, limit=10**6)
    assert time.monotonic() - begun < 60


@pytest.mark.extra
def test_place_waits_for_collection_and_then_ends_itself(places: Places) -> None:
    own = places.directory("own")
    spec = places.spec(part("own", own, "/own"), collect_within=5.0)
    place = places.open(spec)
    places.run(place, "sh", "-c", "echo work > /own/a")
    into = places.directory("into")
    place.take("own", into, limit=1000)
    assert (into / "a").read_text() == "work\n"
    places.await_end(spec)
    with pytest.raises(EngineError, match="ended"):
        place.take("own", into, limit=1000)


@pytest.mark.variants("killed")
@pytest.mark.parametrize("end", ["killed", "removed"])
def test_another_porter_continues_and_runs_no_step_again(places: Places, end: str) -> None:
    own = places.directory("own")
    waits = ("sh", "-c", "echo packed >> /own/runs")
    spec = places.spec(part("own", own, "/own", "agent", "harvest"), after={"harvest": "agent"},
                       command=waits)  # fmt: skip
    place = places.open(spec)
    step = place.order(
        "agent", Start(command=("sh", "-c", "echo up | tee -a /own/runs; sleep 300"))
    )
    step.start()
    assert next(step.logs()).data == b"up\n"
    porter = f"{spec.name}-porter"
    if end == "killed":
        places.client.kill(porter)
    else:
        places.client.remove_container(porter, force=True)
    assert step.wait(60).exit_code == 137

    again = places.open(spec)
    agent = again.step("agent")
    assert agent is not None
    agent.start()
    status, said, _ = finish(agent)
    assert (status.exit_code, said) == (137, b"up\n")
    with pytest.raises(EngineError):
        again.order("agent", NAP)
    packing = again.order("harvest", Start(command=("cat", "/own/runs")))
    packing.start()
    assert finish(packing)[1] == b"up\n"
    assert again.journal(0)[1].exit_code is None


def test_a_place_that_lost_its_files_is_not_opened_again(places: Places) -> None:
    own = places.directory("own", a="a")
    spec = places.spec(part("own", own, "/own"))
    places.run(places.open(spec), "true")
    for name in (f"{spec.name}-agent", f"{spec.name}-porter"):
        places.client.remove_container(name, force=True)
    places.client.remove_volume(f"{spec.name}-part-own")
    with pytest.raises(EngineError, match="gone"):
        places.open(spec)


@pytest.mark.extra
def test_removal_by_another_program_is_no_success(places: Places) -> None:
    place = places.open(places.spec())
    step = place.order("agent", Start(command=("sh", "-c", "echo up; sleep 300")))
    step.start()
    logs = step.logs()
    assert next(logs).data == b"up\n"
    places.client.remove_container(step.id, force=True)
    assert list(logs) == []
    with pytest.raises(EngineError):
        step.wait(60)
    assert place.journal(0)[-1].exit_code is None


@pytest.mark.extra
def test_kill_of_pid_1_from_outside_is_no_success(every: Places) -> None:
    place = every.open(every.spec())
    step = place.order("agent", NAP)
    step.start()
    step.kill("SIGKILL")
    status = step.wait(60)
    assert (status.exit_code, status.oom_killed) == (137, False)
    # A place knows the code only if it has killed the step itself.
    assert {entry.exit_code for entry in place.journal(0)} <= {None, 137}


def test_out_of_memory_is_no_success(every: Places) -> None:
    place = every.open(every.spec(memory=48 * 1024**2))
    status, _, _ = every.run(place, "python3", "-c", "x = b'x' * 200_000_000")
    assert status.exit_code != 0
    assert status.oom_killed


@pytest.mark.extra
def test_sigterm_reaches_the_command(every: Places) -> None:
    place = every.open(every.spec())
    task = "trap 'echo bye; exit 9' TERM; echo ready; sleep 300 & wait"
    step = place.order("agent", Start(command=("sh", "-c", task)))
    step.start()
    logs = step.logs()
    assert next(logs).data == b"ready\n"
    step.kill("SIGTERM")
    assert b"".join(chunk.data for chunk in logs) == b"bye\n"
    assert step.wait(60).exit_code == 9
    step.kill("SIGTERM")


@pytest.mark.extra
def test_of_two_clients_one_gets_the_step(every: Places) -> None:
    spec = every.spec()
    clients = [every.open(spec) for _ in range(3)]
    got: list[str] = []

    def order(place: Place) -> None:
        with suppress(EngineError):
            got.append(place.order("agent", NAP).id)

    threads = [threading.Thread(target=order, args=(place,)) for place in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


def test_nothing_is_left(
    places: Places, docker_engine: DockerEngine, labels: Mapping[str, str]
) -> None:
    own = places.directory("own")
    spec = places.spec(part("own", own, "/own"), after={"harvest": "agent"}, command=("true",))
    spec = replace(spec, labels={**spec.labels, ROLE: "worker"})
    place = places.open(spec)
    place.order("agent", NAP).start()
    kinds = [found.kind for found in docker_engine.leftovers(labels)]
    assert (kinds.count("container"), kinds.count("volume")) == (3, 4)
    other = places.open(spec)
    other.remove()
    other.remove()
    assert docker_engine.leftovers(labels) == []


SECRET = "sesame-open"


def test_secrets_are_in_no_object_and_on_no_disk(
    places: Places, docker_engine: DockerEngine, labels: Mapping[str, str]
) -> None:
    keys = places.directory("keys", token=SECRET)
    (keys / "token").chmod(0o400)
    memory = part("keys", keys, "/run/secrets", read_only=True, in_memory=True)
    place = places.open(places.spec(memory))
    task = f"cat /run/secrets/token; echo; echo up; sleep 300; echo {SECRET}"
    step = place.order("agent", Start(command=("sh", "-c", task), env={"TOKEN": SECRET}))
    step.start()
    assert next(step.logs()).data.startswith(SECRET.encode())
    for left in docker_engine.leftovers(labels):
        if left.kind == "container":
            shown = places.client.inspect_container(left.id)
            assert SECRET not in str(shown)
            if shown["Name"].endswith("-porter"):
                environ = Path(f"/proc/{shown['State']['Pid']}/environ").read_bytes()
                assert SECRET.encode() not in environ
        else:
            shown = places.client.inspect_volume(left.id)
            assert SECRET not in str(shown)
            if (shown["Options"] or {}).get("type") != "tmpfs":
                for file in Path(shown["Mountpoint"]).rglob("*"):
                    if file.is_file() and not file.name.endswith(".stdout"):
                        assert SECRET.encode() not in file.read_bytes()
    channel = next(v for v in docker_engine.leftovers(labels) if v.id.endswith("channel-agent"))
    found = Path(places.client.inspect_volume(channel.id)["Mountpoint"])
    assert not (found / "order").exists()


@pytest.mark.parametrize(
    ("part_name", "user", "source"),
    [
        ("own/below", "1:1", "own"),
        ("own", "0:0", "own"),
        ("own", "", "own"),
        ("own", "1:1", "own/a"),
    ],
)
def test_what_places_with_volumes_lack_is_refused(
    places: Places, part_name: str, user: str, source: str, tmp_path: Path
) -> None:
    places.directory("own", a="a")
    spec = places.spec(part(part_name, tmp_path / source, "/own"))
    step = replace(spec.steps[0], spec=replace(spec.steps[0].spec, user=user))
    with pytest.raises(UnsupportedError):
        places.open(replace(spec, steps=(step,)))
