"""Find and remove what the orchestrator has on a machine: in the engine, and in files."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.files.atomic import write_private
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.files.user_state import state_home
from orchestrator.base.text.split_lines import split_lines
from orchestrator.engine.images.names import BASE_IMAGE, is_own_name
from orchestrator.engine.images.recipes import RECIPE
from orchestrator.engine.interface.labels import MANAGED, REPOSITORY, RUN
from orchestrator.engine.interface.protocol import Engine, Leftover
from orchestrator.engine.places.place import is_shared
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.inventory import RecordedWorker, worker_refs
from orchestrator.runs.cleanup.orphans import places_with_work
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.cleanup.report import CleanupReport
from orchestrator.runs.cleanup.retention import sole_copies
from orchestrator.sandbox.deadlines.removal import remove_all
from orchestrator.sandbox.home import known
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.run_outline import read_outline

_REFS: Final = "refs/orchestrator/"


@dataclass(frozen=True, kw_only=True)
class Belongings:
    """What the orchestrator has on a machine."""

    images: tuple[str, ...]
    """Names of images."""
    derived: tuple[str, ...]
    """Names of the user's images that were built on one of these images; they are kept."""
    leftovers: tuple[Leftover, ...]
    """Containers, networks and volumes."""
    live: tuple[str, ...]
    """Live runs, each as its id and its repository."""
    state: tuple[Path, ...]
    """Directories of files that outlive a command: the user's, and one of each repository."""
    sole: tuple[str, ...] = ()
    """Work of workers that exists nowhere else. It is kept, with the state of its repository."""
    kept_state: frozenset[Path] = frozenset()
    """Those directories of `state` that are kept because of such work."""


@dataclass(kw_only=True)
class Removal:
    """What was removed of a machine's belongings, and what was not."""

    report: dict[Path, CleanupReport] = field(default_factory=dict)
    """The cleanup of each repository, by its top directory."""
    problems: list[str] = field(default_factory=list)
    """What could not be removed, and why."""
    kept: list[str] = field(default_factory=list)
    """Refs with work that is in no branch of the user."""


def find_belongings(
    engine: Engine,
    repositories: Iterable[Repository],
    *,
    labels: Mapping[str, str] | None = None,
    is_own: Callable[[str], bool] = is_own_name,
) -> Belongings:
    """Find the images, engine objects and files of the orchestrator.

    Args:
        engine: The engine.
        repositories: Repositories whose state is included.
        labels: Labels of the engine objects. Default: those of all.
        is_own: Whether a name is that of an image to remove.

    Raises:
        EngineError: The engine does not answer.
    """
    leftovers = tuple(engine.leftovers(labels or {MANAGED: "true"}))
    runs = {(leftover.labels.get(REPOSITORY), leftover.labels.get(RUN)) for leftover in leftovers}
    shared = is_shared(engine)
    live = {
        f"{run} in {place}"
        for place, run in runs
        if place and run and _is_live(Path(place), run, shared=shared)
    }
    images = {*engine.labelled_images(RECIPE)}
    if engine.image_id(BASE_IMAGE) is not None:
        images.add(BASE_IMAGE)  # an image of the user that `image build --base` gave this name
    # protection: live-sandboxes-stay
    live |= {f"sandbox {home.id}" for home in known()}
    # An image that is built on another one has the other one's labels.
    # protection: images-of-user-stay
    own = {name for name in images if is_own(name)}
    states = []
    sole, kept = [], set[Path]()
    for repository in repositories:
        live |= {
            f"{run.run_id} in {repository.common_dir}"
            for run in all_runs(repository.state_dir)
            if run.is_live()
        }
        states.append(repository.state_dir)
        if work := _sole_copies(repository, worker_refs(repository)):
            sole += work
            kept.add(repository.state_dir)
    existing = tuple(path for path in (state_home(), *states) if path.exists())
    # Images that are built on others come first.
    ordered = sorted(own, key=lambda name: (name == BASE_IMAGE, name))
    return Belongings(
        images=tuple(ordered),
        derived=tuple(sorted(images - own)),
        leftovers=leftovers,
        live=tuple(sorted(live)),
        state=existing,
        sole=(*sole, *_only_in_engine(leftovers, except_in=repositories)),
        kept_state=frozenset(kept),
    )


def remove_belongings(
    engine: Engine, repositories: Iterable[Repository], found: Belongings
) -> Removal:
    """Remove what was found, go on after a failure, and keep unmerged work as a cleanup does."""
    removal = Removal()
    for repository in repositories:
        _remove_state(engine, repository, removal)
    held = _only_in_engine(found.leftovers)
    removal.problems += (problem for problem in held if problem not in removal.problems)
    kept = [left for lefts in held.values() for left in lefts]
    stuck = remove_all(engine, [left for left in found.leftovers if left not in kept])
    removal.problems += map(str, stuck)
    for image in found.images:
        try:
            engine.remove_image(image)
        except OrchestratorError as error:
            removal.problems.append(error.message)
    remove_tree(state_home())
    with suppress(OSError):
        # Often made for this directory alone; other programs make it again when they need it.
        state_home().parent.rmdir()
    removal.problems += (f"{path} is not empty" for path in found.state if path.exists())
    return removal


def _only_in_engine(
    leftovers: Iterable[Leftover], *, except_in: Iterable[Repository] = ()
) -> dict[str, list[Leftover]]:
    """Return the objects with work of dead runs that was not collected, by a description.

    Args:
        leftovers: Engine objects of any repositories.
        except_in: Repositories that are cleaned up before, which collects the work.
    """
    cleaned = {str(repository.common_dir) for repository in except_in}
    by_run: dict[Path, list[Leftover]] = {}
    for left in leftovers:
        place, run_id = left.labels.get(REPOSITORY), left.labels.get(RUN)
        if place and run_id and place not in cleaned:
            path = Path(place) / "orchestrator" / "runs" / run_id
            by_run.setdefault(path, []).append(left)
    found = {}
    for path, lefts in by_run.items():
        run, held = RunDirectory(path), places_with_work(lefts)
        record = read_outline(run) if held else None
        if record is None:
            continue
        for spec in record.workers:
            if spec.worker_id in held and RecordedWorker(run, record, spec).is_stranded():
                where = f"worker {spec.worker_id} of dead run {run.run_id} in {run.path.parents[2]}"
                way = f"`orchestrator resume {run.run_id}` collects it"
                found[f"{where}: its work is only in the engine; {way}"] = held[spec.worker_id]
    return found


def _sole_copies(repository: Repository, refs: frozenset[str] = frozenset()) -> list[str]:
    return [
        f"{path}, {what}"
        for run in all_runs(repository.state_dir)
        for path, what in sole_copies(run, refs)
    ]


def _is_live(place: Path, run: str, *, shared: bool) -> bool:
    """Return whether a run is live; unknown counts as live.

    On an engine that other machines use, a run that is not recorded here may be one of theirs.
    """
    directory = RunDirectory(place / "orchestrator" / "runs" / run)
    try:
        return directory.is_live() or (shared and not directory.path.exists())
    except OSError:
        return True


def _remove_state(engine: Engine, repository: Repository, removal: Removal) -> None:
    """Clean up a repository; then remove its state directory, if nothing needs it any more."""
    if not repository.state_dir.exists():
        return
    report = cleanup(repository.top, engine=engine)
    removal.report[repository.top] = report
    removal.kept += split_lines(repository.git.text("for-each-ref", "--format=%(refname)", _REFS))
    broken = (worker.problem for worker in report.workers if worker.problem)
    problems = [*report.problems, *broken, *(f"{run} is live" for run in report.live)]
    problems += (f"the run {run}" for run in report.others)
    problems += _sole_copies(repository)
    removal.problems += problems
    if problems:
        return
    with repository.lock():
        # Undo `Repository.exclude_worktrees`.
        path = repository.common_dir / "info" / "exclude"
        if path.exists():
            ours = {os.fsencode(f"/{pattern}") for pattern in repository.worktree_patterns()}
            before = path.read_bytes().split(b"\n")
            after = [line for line in before if line not in ours]
            if after != before:
                write_private(path, b"\n".join(after), mode=path.stat().st_mode & 0o777)
        remove_tree(repository.state_dir)
