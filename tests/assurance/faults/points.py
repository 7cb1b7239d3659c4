"""The points at which the orchestrator's process is killed: each step that leaves something."""

import functools
import importlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import orchestrator

_PACKAGE = Path(orchestrator.__file__).parent

Outcome = Literal["whole", "nothing", "unbegun", "refused"]
"""Outcome of `resume`: all results; no run; a run that never began; missing private values."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A function, and the moment of one of its calls."""

    target: str
    """`function` or `Class.method`, wherever it is; `module:function`, as the caller finds it, if
    several modules define or call a function of this name.
    """
    when: Literal["before", "after"]
    nth: int = 1
    argument: str | None = None
    """Count only calls with this text in an argument."""
    outcome: Outcome = "whole"
    private: bool = True
    """Whether the run gets a secret, which must not be in its record."""
    stages: bool = False
    """Whether the run has a setup and a teardown."""
    pause: float = 0.0
    """Seconds between the call and the kill, in which other threads continue."""
    worktrees: str = "start"
    """When worktrees appear."""
    plain: bool = False
    """Whether the tasks write only ordinary files, which are harvested without a container."""
    broker: bool = False
    """Whether the keys are in the run's credential broker."""
    streams: bool = False
    """Whether copies of the files are sent to the engine."""


def holders(target: str) -> tuple[list[Any], str]:
    """Return the class or the modules in which callers find a target, and its name there."""
    module, _, path = target.rpartition(":")
    *parents, name = path.split(".")
    home = importlib.import_module(module or _module_with(path.partition(".")[0]))
    if module or parents:
        return [functools.reduce(getattr, parents, home)], name
    real = getattr(home, name)
    modules = [found for key, found in sys.modules.items() if key.startswith(_PACKAGE.name)]
    return [found for found in modules if vars(found).get(name) is real], name


def _module_with(name: str) -> str:
    """Return the name of the only module that defines a function or class."""
    (path,) = _places()[name]
    return ".".join(path.relative_to(_PACKAGE.parent).with_suffix("").parts)


@functools.cache
def _places() -> Mapping[str, set[Path]]:
    """Return the files that define a function or class of each name at their top."""
    definition = re.compile(r"^(?:(?:async )?def|class) (\w+)\b", re.M)
    found: dict[str, set[Path]] = {}
    for path in _PACKAGE.rglob("*.py"):
        for name in definition.findall(path.read_text()):
            found.setdefault(name, set()).add(path)
    return found


@dataclass(frozen=True, kw_only=True)
class GitPoint:
    """A git command that is stopped while it writes files."""

    command: tuple[str, ...]
    files: str
    """Pattern of paths in the repository: the first match shows that git is writing."""
    dies: bool
    """Whether git is killed too, as by a restart of the machine, or continues after a pause."""
    many_in_base: bool
    """Whether many files that slow git down are in the base, or are written by the tasks."""
    worktrees: str = "start"

    @property
    def is_shared(self) -> bool:
        """Whether the files are those of a checkout that workers share."""
        return self.worktrees != "start"


def _around(
    target: str,
    *,
    nth: int = 1,
    argument: str | None = None,
    stages: bool = False,
    worktrees: str = "start",
    plain: bool = False,
    broker: bool = False,
    streams: bool = False,
    pause: float = 0.0,
) -> tuple[Point, Point]:
    before = Point(
        target=target, when="before", nth=nth, argument=argument, stages=stages,
        worktrees=worktrees, plain=plain, broker=broker, streams=streams, pause=pause,
    )  # fmt: skip
    return before, replace(before, when="after")


def _named(**points: Point | tuple[Point, Point]) -> dict[str, Point]:
    found = {}
    for name, point in points.items():
        several = point if isinstance(point, tuple) else (point,)
        for one in several:
            found[f"{one.when}-{name.replace('_', '-')}"] = one
    return found


_WRITE = "orchestrator.base.files.atomic:write_atomically"

POINTS = _named(
    planning=Point(target="orchestrator.runs.runner:check_run", when="before", outcome="nothing"),
    create=(
        Point(target="RunDirectory.create", when="before", outcome="nothing"),
        Point(target="RunDirectory.create", when="after", outcome="refused"),
    ),
    run_json=Point(target=_WRITE, when="before", argument="/run.json", outcome="unbegun"),
    unclaimed=Point(target="RunDirectory.create", when="after", private=False),
    claim=Point(
        target="orchestrator.repository.repository:Repository.claim",
        when="after",
        outcome="refused",
    ),
    claimed=Point(
        target="orchestrator.repository.repository:Repository.claim", when="after", private=False
    ),
    keep_inputs=(
        Point(target="keep_inputs", when="before", outcome="refused"),
        Point(target="keep_inputs", when="after"),
    ),
    base_objects=_around("base_objects"),
    write_shallow=_around("RunDirectory.write_shallow"),
    probe=Point(target="DockerContainer.wait", when="before"),
    # Both run at the same time: without a pause, the other's request could reach the engine later.
    create_network=_around("DockerEngine.create_network", pause=1.0),
    close_host=_around("orchestrator.engine.docker.engine:close_host", pause=1.0),
    add_worktree=_around("orchestrator.worker.prepare:add_worktree"),
    second_worktree=_around("orchestrator.worker.prepare:add_worktree", nth=2),
    check_out=_around("orchestrator.worker.prepare:check_out"),
    accept_owner=_around("Worktree.accept_owner"),
    make_store=_around("orchestrator.worker.prepare:make_store"),
    note_prepared=_around("Checkpoints.note_prepared"),
    lay_out=_around("_write_files"),
    helper_ready=_around("Helper.await_ready"),
    filter=_around("NetworkFilter.apply"),
    remove_network=_around("orchestrator.runs.live.shared_resources:_remove_network"),
    setup=_around("start_again", stages=True),
    note_setup=_around("Checkpoints.note_stage", stages=True),
    teardown=_around("start_again", argument="'teardown'", stages=True),
    note_teardown=_around("Checkpoints.note_stage", argument="teardown", stages=True),
    checked_out=_around("orchestrator.worker.steps.checks:make_store", stages=True),
    first_check=_around("start_again", argument="'check-1'", stages=True),
    note_check=_around("Checkpoints.note_checks", stages=True),
    last_check=_around("Checkpoints.note_checks", nth=4, stages=True),
    container=(
        Point(target="orchestrator.sandbox.supervision.launch:create", when="before"),
        Point(target="orchestrator.sandbox.supervision.launch:create", when="after"),
    ),
    note_launch=Point(target="Checkpoints.note_launch", when="after"),
    start=Point(target="Launch.starting_now", when="before"),
    second_start=Point(target="Launch.starting_now", when="before", nth=2),
    output=Point(target="WorkerLog.write", when="after"),
    second_output=Point(target="WorkerLog.write", when="after", nth=2),
    wait=Point(target="DockerContainer.wait", when="after", nth=2),
    note_ending=_around("Checkpoints.note_ending"),
    container_removal=_around("orchestrator.worker.steps.agent_container:_remove"),
    pack=(
        Point(target="orchestrator.worker.steps.pack:pack", when="before"),
        Point(target="orchestrator.worker.steps.pack:pack", when="after"),
    ),
    pack_start=Point(target="orchestrator.worker.steps.pack:_wait_for_end", when="before"),
    check=_around("_make_quarantine"),
    keep_refs=_around("import_kept"),
    between_kept_refs=Point(target="_drop_old", when="after"),
    accept_pack=_around("orchestrator.repository.incoming.quarantine:accept_pack"),
    note_harvested=_around("Checkpoints.note_harvested"),
    move_branch=_around("orchestrator.repository.repository:Repository.move_branch"),
    update=_around("Worktree.update"),
    update_behind_scratch=Point(target="Worktree.update", when="before", pause=2.0),
    scratch=_around("orchestrator.worker.harvest.harvest:discard_scratch"),
    handover=_around("orchestrator.worker.workspace.artifacts:take"),
    handover_moved=Point(target="_cleaned", when="before"),
    result=(
        Point(target="RunDirectory.write_result", when="before"),
        Point(target="RunDirectory.write_result", when="after"),
    ),
    second_result=_around("RunDirectory.write_result", nth=2),
    run_result=_around("RunDirectory.write_run_result"),
    sweep=_around("_sweep"),
    forget=_around("orchestrator.runs.live.shared_resources:forget"),
)  # fmt: skip

POINTS |= _named(
    make_checkout=_around("orchestrator.worker.workspace.shared_checkout:_make", worktrees="end"),
    seal_checkout=_around("_seal", worktrees="end"),
    take_checkout=_around("Checkouts.take", nth=2, worktrees="end"),
    shared_store=_around("orchestrator.worker.prepare:make_store", worktrees="end"),
    shared_output=Point(target="WorkerLog.write", when="after", worktrees="end"),
    shared_pack=_around("orchestrator.worker.steps.pack:pack", worktrees="end"),
    shared_branch=_around(
        "orchestrator.repository.repository:Repository.move_branch", worktrees="end"
    ),
    show_worktree=_around("show_worktree", worktrees="end"),
    shown_worktree=_around("orchestrator.worker.prepare:check_out", worktrees="end"),
    note_shown=_around("Checkpoints.note_shown", worktrees="end"),
    prune_checkouts=_around("prune_checkouts", worktrees="end"),
)
"""Points that are only reached by runs whose worktrees appear at the end or never."""

POINTS |= _named(
    plain_harvest=_around("pack_plainly", plain=True),
    plain_read=_around("read_plain_files", plain=True),
    plain_commit=_around("commit_plainly", plain=True),
    plain_scratch=_around("orchestrator.repository.commits.plain_commit:make_bare", plain=True),
    plain_check=_around("_make_quarantine", plain=True),
    plain_accept=_around("orchestrator.repository.incoming.quarantine:accept_pack", plain=True),
    plain_note=_around("Checkpoints.note_harvested", plain=True),
    plain_branch=_around("orchestrator.repository.repository:Repository.move_branch", plain=True),
    plain_forget=_around("Workspace.forget_written", plain=True),
    plain_update=_around("Worktree.update", plain=True),
    plain_shared=_around("commit_plainly", plain=True, worktrees="none"),
    plain_shown=_around("show_worktree", plain=True, worktrees="end"),
)
"""Points of a harvest without a container."""

POINTS |= _named(
    broker_network=_around("DockerEngine.create_private_network", broker=True),
    guard=_around("start_guard", broker=True),
    guard_ready=Point(
        target="orchestrator.engine.docker.firewall:await_ready", when="before", broker=True
    ),
    broker_noted=_around("note_network", broker=True),
    broker_memory=_around("grant_directory", broker=True),
    broker_container=_around("RunBroker._follow", broker=True),
    broker_ready=_around("RunBroker._await", broker=True),
    broker_grant=_around("write_grant", broker=True),
    broker_dismissed=_around("remove_grant", broker=True),
    broker_output=Point(target="WorkerLog.write", when="after", broker=True),
    broker_closed=_around("_sweep", broker=True),
)
"""Points of runs with a credential broker."""

_PORTER = "orchestrator.engine.docker.porter_calls:Porter"
POINTS |= _named(
    streams_put=_around("VolumePlace.put", streams=True),
    streams_second_put=_around("VolumePlace.put", nth=2, streams=True),
    streams_volume=Point(target="Volumes.create", when="after", nth=3, streams=True),
    streams_fill=_around("Volumes.fill", streams=True),
    streams_porter=_around("VolumePlace._start_porter", streams=True),
    streams_container=_around("VolumePlace._container", streams=True),
    streams_order=_around(f"{_PORTER}.send", argument="order", streams=True),
    streams_launch=Point(target="Checkpoints.note_launch", when="after", streams=True),
    streams_start=_around("VolumeStep.start", streams=True),
    streams_following=_around("VolumePlace._create_following", streams=True),
    streams_output=Point(target="WorkerLog.write", when="after", streams=True),
    streams_ending=_around("Checkpoints.note_ending", streams=True),
    streams_removal=_around("VolumeStep.remove", streams=True),
    streams_pack=_around("orchestrator.worker.steps.pack:pack", streams=True),
    streams_take=_around("VolumePlace.take", streams=True),
    streams_accept=_around("orchestrator.repository.incoming.quarantine:accept_pack", streams=True),
    streams_harvested=_around("Checkpoints.note_harvested", streams=True),
    streams_branch=_around("orchestrator.repository.repository:Repository.move_branch",
        streams=True),
    streams_place_removal=_around("Volumes.remove", streams=True),
    streams_result=_around("RunDirectory.write_result", streams=True),
    streams_setup=_around("Checkpoints.note_stage", stages=True, streams=True),
    streams_teardown=_around("Checkpoints.note_stage", argument="teardown", stages=True,
                             streams=True),
)  # fmt: skip
"""Points of runs whose files are copied to volumes of the engine."""

FLOW_POINTS = _named(
    flow_merge=_around("integrate", nth=4),
    flow_base=_around("RunDirectory.note_base", nth=3),
    flow_move=Point(
        target="orchestrator.runs.scheduling.dependencies:_move_branch", when="after", nth=3
    ),
    flow_objects=_around("orchestrator.runs.scheduling.dependencies:ready_more", nth=3),
    flow_pack=Point(target="orchestrator.worker.prepare:pack_since", when="before", nth=3),
    flow_inputs=_around("Shared.give_inputs"),
    flow_start=Point(target="DockerContainer.start", when="after", nth=3),
    flow_result=Point(target="RunDirectory.write_result", when="after", nth=2),
)
"""Points that only workflows reach."""

_ANSWER = "StoredAnswers.put"
LANDING_POINTS = _named(
    land_import=_around("orchestrator.review.landing.merge:import_commits"),
    land_verdict=_around("StoredVerdicts.put", nth=2),
    land_checked=_around("orchestrator.runs.purposes.commit_checks:cleanup", nth=2),
    land_marked=_around("Chain.add_marked"),
    land_ask=_around("ConflictAgent._execute"),
    land_asked=_around(_ANSWER),
    land_agent_output=Point(target="WorkerLog.write", when="after", argument="resolving"),
    land_agent_ended=_around("ConflictAgent._proposal"),
    land_agent_removed=_around("orchestrator.runs.purposes.conflict_agent:cleanup"),
    land_answered=_around(_ANSWER, nth=2),
    land_resolved=_around("Chain.add_tree"),
    land_record=_around("orchestrator.review.landing.land:write_record"),
    land_begin=_around("note_under_way"),
    land_move=_around("orchestrator.review.landing.land:_move"),
    land_files=_around("bring_forward"),
    land_done=_around("forget_under_way"),
)
"""Points of `merge --queue` with an agent that resolves a conflict."""

TURN_POINTS = _named(
    turn_private=Point(target="orchestrator.runs.resuming.continuing:keep_private", when="after"),
    turn_queue=_around("orchestrator.runs.resuming.continuing:queue_message"),
    turn_given_up=_around("Checkpoints.note_given_up"),
    turn_take=_around("orchestrator.worker.turns.turns:take_message"),
    turn_reopen=Point(target="orchestrator.runs.scheduling.scheduler:reopen", when="after"),
    turn_archive=_around("orchestrator.worker.attempts:_archive_attempt"),
    turn_session=_around("orchestrator.worker.turns.sessions:make_session"),
    turn_prepared=Point(target="Checkpoints.note_prepared", when="after"),
    turn_container=Point(target="orchestrator.sandbox.supervision.launch:create", when="after"),
    turn_start=Point(target="Launch.starting_now", when="before"),
    turn_output=Point(target="WorkerLog.write", when="after"),
    turn_ending=Point(target="Checkpoints.note_ending", when="after"),
    turn_kept=_around("orchestrator.worker.turns.sessions:keep_session"),
    turn_branch=_around("orchestrator.repository.repository:Repository.move_branch"),
    turn_harvested=Point(target="Checkpoints.note_harvested", when="after"),
    turn_last=Point(target="Checkpoints.note_last", when="before"),
    turn_result=_around("RunDirectory.write_result"),
    turn_end=_around("RunDirectory.write_run_result"),
)
"""Points of `continue`, after which the turn is completed without being repeated."""

_WORKTREE = ("read-tree", "--reset")
GIT_POINTS = {
    "checkout-goes-on": GitPoint(
        command=_WORKTREE, files=".architect-parallel-*/many/*", dies=False, many_in_base=True
    ),
    "checkout-dies": GitPoint(
        command=_WORKTREE, files=".architect-parallel-*/many/*", dies=True, many_in_base=True
    ),
    "sharing-goes-on": GitPoint(
        command=_WORKTREE, files=".git/orchestrator/checkouts/.half/tree/many/*", dies=False,
        many_in_base=True, worktrees="end",
    ),
    "sharing-dies": GitPoint(
        command=_WORKTREE, files=".git/orchestrator/checkouts/.half/tree/many/*", dies=True,
        many_in_base=True, worktrees="end",
    ),
    "update-goes-on": GitPoint(
        command=("read-tree", "-m"), files=".architect-parallel-*/new/many-*", dies=False,
        many_in_base=False
    ),
    "update-dies": GitPoint(
        command=("read-tree", "-m"), files=".architect-parallel-*/new/many-*", dies=True,
        many_in_base=False,
    ),
}  # fmt: skip
