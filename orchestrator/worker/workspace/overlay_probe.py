"""Test whether containers can mount files of this machine, and choose how workers get theirs."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Literal

from orchestrator.base.errors import (
    ConfigError,
    EngineError,
    EngineUnavailableError,
    UnsupportedError,
)
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.files.safe_open import read_limited
from orchestrator.base.files.shared import make_shared
from orchestrator.base.machine import boot_id
from orchestrator.config.settings.container import Isolation
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.interface.labels import for_a_moment
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.engine.interface.spec import BindMount, ContainerSpec, OverlayMount
from orchestrator.engine.places.place import Part, PlaceEngine, PlaceSpec, Start, Step
from orchestrator.repository.repository import Repository
from orchestrator.state.secret_files import readable_directory
from orchestrator.worker.workspace.layout import PROBE, WORKSPACE
from orchestrator.worker.workspace.worker_user import worker_user

_PROBE_TIMEOUT = 60.0
_PROBE_SIZE = 64 * 1024


def choose_transfer(
    engine: ContainerEngine, features: EngineFeatures, repository: Repository, isolation: Isolation
) -> EngineFeatures:
    """Return the features with how workers get their files, after a test of the engine.

    Raises:
        UnsupportedError: Containers cannot use files of this machine, and no copies can be sent.
        EngineUnavailableError: The engine does not answer.
    """
    asked, runtime = isolation.transfer, isolation.runtime or features.default_runtime or None
    sent = replace(features, overlay=False, transfer="streams")
    if features.transfer == "streams" and asked != "mounts":
        return sent
    if asked == "streams":
        _check_streams(engine, features, repository)
        return sent
    overlay = may_overlay(features, repository)
    if not overlay and not features.address:
        # The engine is part of this process.
        return replace(features, overlay=False)
    known = repository.state_dir / "overlay"
    # The same repository may be at another path in a container that uses the engine of its host.
    # The socket of another machine's engine may have been forwarded to the path of this one's.
    # protection: mounts-are-tested-for-each-engine
    here = f"{features.version} {features.fingerprint} {runtime or ''} {repository.state_dir}"
    mounted = replace(features, overlay=overlay)
    found = f"{'overlay' if overlay else 'bind'} {here}"
    # Somebody may mount the files later, so this holds only until this machine starts again.
    hidden = f"streams {here} {boot_id()}"
    remembered = known.read_text() if known.exists() else ""
    if remembered == found:
        return mounted
    if remembered == hidden and asked == "auto":
        _check_streams(engine, features, repository)
        return sent
    with _scratch(repository) as scratch:
        # protection: mounts-are-tested-with-runs-runtime
        test = partial(probe, engine, repository, scratch, runtime=runtime)
        if test(overlay=overlay):
            write_atomically(known, found)
            return mounted
        if overlay and test(overlay=False):
            return replace(features, overlay=False)
    if asked == "auto" and isinstance(engine, PlaceEngine):
        write_atomically(known, hidden)
        _check_streams(engine, features, repository)
        return sent
    raise UnsupportedError(
        f"the engine does not see the files of this machine in {repository.common_dir}, or its "
        "containers cannot write to them",
        key="engine.other-files",
        hint="in a container that uses the engine of its host, such as a CI job, mount the "
        "repository at the same path as on the host; elsewhere, use `--transfer auto`",
    )


def _check_streams(
    engine: ContainerEngine, features: EngineFeatures, repository: Repository
) -> None:
    """Check that containers can use copies of files, unless it was found out before.

    Raises:
        UnsupportedError: They cannot.
    """
    if not features.address or not isinstance(engine, PlaceEngine):
        return
    known = repository.state_dir / "streams"
    found = f"{features.version} {features.fingerprint} {boot_id()}"
    if known.exists() and known.read_text() == found:
        return
    with _scratch(repository) as scratch:
        # protection: copies-are-tested-before-first-worker
        if not _probe_streams(engine, repository, scratch):
            raise UnsupportedError(
                f"containers of the engine ({features.version}) cannot use copies of files: they "
                "do not get them, cannot change them, or do not give them back",
                key="engine.no-copies",
                hint="use another engine; `orchestrator doctor` shows the result of the same test",
            )
    write_atomically(known, found)


def check_memory(
    engine: ContainerEngine, features: EngineFeatures, repository: Repository, run: Path, root: Path
) -> None:
    """Check that containers get the files in a directory in memory, where secrets are written.

    Raises:
        ConfigError: Containers do not see the directory.
    """
    known = repository.state_dir / "memory"
    # A container has a file system of its own in memory, unless it was given that of its host.
    found = f"{features.version} {root} {root.stat().st_dev}"
    if known.exists() and known.read_text() == found:
        return
    with readable_directory(root, run.name) as shown:
        (shown / "shown").touch()
        mount = BindMount(source=shown, target=WORKSPACE, read_only=True)
        if not _succeeds(engine, _spec(repository, run, mount, "test -e shown")):
            raise ConfigError(
                f"the engine does not see {root} of this machine, where secrets are kept in memory",
                key="secret.invisible",
                hint="in a container that uses the engine of its host, such as a CI job, mount the "
                f"host's {root} at the same path: `--volume {root}:{root}`",
            )
    write_atomically(known, found)


def may_overlay(features: EngineFeatures, repository: Repository) -> bool:
    """Return whether the engine has overlays, whose options can contain the repository's paths."""
    return features.overlay and not set(",:\\") & set(f"{repository.common_dir}{repository.top}")


def probe(
    engine: ContainerEngine,
    repository: Repository,
    run: Path,
    *,
    overlay: bool,
    runtime: str | None = None,
) -> bool:
    """Return whether a container can write a file through a mount."""
    root = run / PROBE
    # A process that died may have left test files.
    remove_tree(root)
    layers = {name: root / name for name in ("lower", "upper", "work")}
    for path in layers.values():
        path.mkdir(parents=True)
    for path in layers.values():
        os.chown(path, *worker_user(0))
    upper = layers["upper"]
    mount = (
        OverlayMount(lower=layers["lower"], upper=upper, work=layers["work"], target=WORKSPACE)
        if overlay
        else BindMount(source=upper, target=WORKSPACE, read_only=False)
    )
    spec = replace(_spec(repository, run, mount, "echo yes > probe"), runtime=runtime)
    try:
        return _succeeds(engine, spec) and (upper / "probe").exists()
    finally:
        remove_tree(root)


def tested_way(
    engine: ContainerEngine,
    features: EngineFeatures,
    repository: Repository,
    isolation: Isolation,
) -> Literal["overlay", "bind", "streams"] | None:
    """Return how workers get their files, as a test shows; None if there is no way.

    Raises:
        EngineUnavailableError: The engine does not answer.
    """
    with _scratch(repository) as run:
        if isolation.transfer != "streams":
            test = partial(probe, engine, repository, run, runtime=isolation.runtime)
            if may_overlay(features, repository) and test(overlay=True):
                return "overlay"
            if test(overlay=False):
                return "bind"
        if isolation.transfer != "mounts" and isinstance(engine, PlaceEngine):
            return "streams" if _probe_streams(engine, repository, run) else None
    return None


@contextmanager
def _scratch(repository: Repository) -> Iterator[Path]:
    make_shared(repository.state_dir)
    with tempfile.TemporaryDirectory(prefix="probe-", dir=repository.state_dir) as scratch:
        yield Path(scratch)


def _probe_streams(engine: PlaceEngine, repository: Repository, run: Path) -> bool:
    """Return whether a container gets files that are sent to it, changes them, and gives them back.

    The worker's user has an empty directory and one with a file, as in a run.
    """
    given, made, kept, taken = (run / name for name in ("given", "made", "kept", "taken"))
    for path in (given, made, kept, taken):
        path.mkdir(mode=0o755)
    word = token_hex(16)
    for path in (given, kept):
        (path / "word").write_text(word)
    for path in (made, kept, kept / "word"):
        os.chown(path, *worker_user(0))
    mounts = {
        "given": BindMount(source=given, target="/given", read_only=True),
        "kept": BindMount(source=kept, target="/kept", read_only=False),
        "made": BindMount(source=made, target=WORKSPACE, read_only=False),
    }
    seen = frozenset({"probe"})
    parts = tuple(Part(name=name, mount=mount, seen_by=seen) for name, mount in mounts.items())
    words = "mv /kept/word /kept/own && cat /given/word /kept/own > word"
    spec = replace(_spec(repository, run, mounts["made"], words), mounts=())
    steps = (Step(name="probe", spec=spec),)
    place = engine.open_place(
        PlaceSpec(name=spec.name, labels=spec.labels, parts=parts, steps=steps),
    )
    try:
        place.put(parts)
        container = place.order("probe", Start(command=spec.command))
        container.start()
        container.wait(_PROBE_TIMEOUT)
        place.take("made", taken, limit=_PROBE_SIZE)
        return read_limited(taken / "word", most=_PROBE_SIZE) == 2 * word.encode()
    except EngineUnavailableError:
        raise
    except (EngineError, TimeoutError, OSError):
        return False
    finally:
        place.remove()


def _spec(
    repository: Repository, run: Path, mount: BindMount | OverlayMount, command: str
) -> ContainerSpec:
    uid, gid = worker_user(0)
    return ContainerSpec(
        name=f"orchestrator-{run.name}-probe",
        image=BASE_IMAGE,
        command=("sh", "-c", command),
        user=f"{uid}:{gid}",
        workdir=WORKSPACE,
        labels=for_a_moment(str(repository.common_dir), run=run.name),
        mounts=(mount,),
    )


def _succeeds(engine: ContainerEngine, spec: ContainerSpec) -> bool:
    try:
        container = engine.start(spec)
        try:
            return container.wait(_PROBE_TIMEOUT).exit_code == 0
        finally:
            container.remove()
    except EngineUnavailableError:
        raise
    except (EngineError, TimeoutError):
        return False
