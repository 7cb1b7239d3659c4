"""Tests of what the steps of a worker's place see: the mounts of each, in their order."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from orchestrator.engine.host_place import HostPlace
from orchestrator.engine.place import Part, Start
from orchestrator.engine.protocol import Container
from orchestrator.engine.spec import BindMount, OverlayMount
from orchestrator.git.checkout import Worktree
from orchestrator.results import Status
from orchestrator.state.worker_directory import Store
from orchestrator.workspace.layout import Mode, Mount
from orchestrator.workspace.mounts import Workspace
from tests.support.containers import bind
from tests.support.local_engine import LocalEngine
from tests.support.parts import seen
from tests.support.runs import shell_run

Kind = Literal["free", "confined", "read-only"]
_BIND = {
    "whole": ["rw /workspace copy"],
    "sealed": ["ro /workspace copy"],
    "confined": ["ro /workspace copy", "rw /workspace/src copy/src", "rw /workspace/a/b copy/a/b"],
}
_VIEW = "overlay/confined-view"
_OVERLAY = {
    "whole": ["rw /workspace tree + upper, overlay"],
    "sealed": ["ro /workspace tree + upper, overlay"],
    "confined": [
        f"ro /workspace tree + {_VIEW}/upper, {_VIEW}/work",
        "rw /workspace/src tree/src + upper/src, overlay/confined-0/work without redirects",
        "rw /workspace/a/b tree/a/b + upper/a/b, overlay/confined-1/work without redirects",
    ],
}
_TREES = {"bind": _BIND, "overlay": _OVERLAY}
_SHARED = {
    "bind": ["rw /caches/pip pip"],
    "overlay": ["rw /caches/pip pip + pip/upper, pip/work"],
}
_MORE = ["rw /run/orchestrator/out handed", "ro /run/orchestrator/shared shared"]
_SWEPT = [
    f"ro /swept/{number} tree + overlay/confined-{name}/upper, overlay/confined-{name}/work"
    for number, name in enumerate(("0", "1", "view"))
]


def described(mount: Mount, root: Path) -> str:
    """Return a mount as text, with paths relative to a directory."""
    words = ["ro" if mount.read_only else "rw", mount.target]
    if isinstance(mount, BindMount):
        return " ".join([*words, str(mount.source.relative_to(root))])
    lower, upper, work = (path.relative_to(root) for path in (mount.lower, mount.upper, mount.work))
    redirects = "" if mount.redirects else " without redirects"
    return " ".join([*words, f"{lower} + {upper}, {work}{redirects}"])


@pytest.mark.parametrize("kind", ["free", "confined", "read-only"])
@pytest.mark.parametrize("mode", ["bind", "overlay"])
def test_each_step_has_these_mounts_in_this_order(tmp_path: Path, mode: Mode, kind: Kind) -> None:
    store = Store(root=tmp_path)
    cache: Mount = bind(tmp_path / "pip", "/caches/pip")
    if mode == "overlay":
        upper, work = tmp_path / "pip/upper", tmp_path / "pip/work"
        cache = OverlayMount(lower=tmp_path / "pip", upper=upper, work=work, target="/caches/pip")
    if (mode, kind) == ("overlay", "confined"):
        for name in ("view", "0", "1"):
            (store.overlay / f"confined-{name}").mkdir(parents=True)
    workspace = Workspace(
        worktree=Worktree(path=tmp_path / "tree", branch="b", git_dir=tmp_path / "main"),
        store=store, objects=tmp_path / "objects", mode=mode, user=(1, 1), start="c0ffee",
        read_only=kind == "read-only", confined_to=("src", "a/b") if kind == "confined" else (),
        caches=(cache,),
        shared=(
            bind(tmp_path / "handed", "/run/orchestrator/out"),
            bind(tmp_path / "shared", "/run/orchestrator/shared", read_only=True),
        ),
    )  # fmt: skip

    def expected(tree: str, access: str, *more: str) -> list[str]:
        pointer, objects = "ro /workspace/.git pointer", "ro /git-objects objects"
        return [*_TREES[mode][tree], pointer, f"{access} /git git", objects, *more]

    task = [*_SHARED[mode], *_MORE]
    of_job = "confined" if kind == "confined" else "whole"
    of_agent, access = ("sealed", "ro") if kind == "read-only" else (of_job, "rw")
    packing = ["rw /harvest harvest", "rw /out out"]
    if mode == "overlay":
        packing += ["ro /written upper", *(_SWEPT if kind == "confined" else [])]
    found = {
        step: [described(mount, tmp_path) for mount in seen(workspace, step)]
        for step in ("agent", "setup", "teardown", "harvest")
    }
    assert found == {
        "agent": expected(of_agent, access, *task),
        "setup": expected(of_job, "rw", *task),
        "teardown": expected(of_job, "rw", *task),
        "harvest": expected("whole", "rw", *packing),
    }
    alone = [described(part.mount, tmp_path) for part in workspace.parts(["harvest"])]
    assert alone == found["harvest"]
    assert workspace.growing == ("tree", "git", "caches-pip", "run-orchestrator-out")
    unlimited = replace(workspace, caches=(), shared=())
    assert unlimited.growing == ("tree", "git")


class Watched(HostPlace):
    """A place that notes its calls, with the steps that it has at the first one."""

    calls: ClassVar[list[str]] = []
    steps: ClassVar[list[list[str]]] = []

    def put(self, parts: Sequence[Part]) -> None:
        self.calls.append("put")
        self.steps.append([step.name for step in self.spec.steps])
        super().put(parts)

    def order(self, step: str, start: Start) -> Container:
        self.calls.append(step)
        return super().order(step, start)

    def take(self, part: str, into: Path, *, limit: int) -> None:
        self.calls.append(f"take {part}")
        super().take(part, into, limit=limit)

    def release(self) -> None:
        self.calls.append("release")


def test_steps_are_described_before_the_first_one_and_ordered_in_turn(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, steps = [], []
    monkeypatch.setattr(Watched, "calls", calls)
    monkeypatch.setattr(Watched, "steps", steps)
    monkeypatch.setattr("orchestrator.worker.place.HostPlace", Watched)
    stages = {"setup": ("true",), "teardown": ("true",), "checks": ("true",)}
    result = shell_run(repo, local_engine, "echo x > x", **stages)
    assert result.status is Status.SUCCESS, result
    assert calls == [
        "put", "setup", "agent", "teardown", "put", "harvest", "take packed",
        "take run-orchestrator-out", "release",
        "put", "check-setup", "check-1", "take run-orchestrator-check",
    ]  # fmt: skip
    attempt = ["agent", "setup", "teardown", "harvest"]
    assert steps == [attempt, attempt, ["check-setup", "check-1"]]
