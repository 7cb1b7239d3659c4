"""Test whether the engine can mount overlays, and choose how workers see their worktrees."""

import os
from pathlib import Path

from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.labels import MANAGED, REPOSITORY, ROLE, RUN
from orchestrator.engine.protocol import ContainerEngine, EngineFeatures
from orchestrator.engine.spec import BindMount, ContainerSpec, OverlayMount
from orchestrator.errors import EngineError, UnsupportedError
from orchestrator.files.remove_tree import remove_tree
from orchestrator.git.repository import Repository
from orchestrator.workspace.layout import PROBE, WORKSPACE, Mode
from orchestrator.workspace.worker_user import worker_user

_PROBE_TIMEOUT = 60.0


def choose_mode(
    engine: ContainerEngine, features: EngineFeatures, repository: Repository, run: Path
) -> Mode:
    """Return the mode of the workers' files, `overlay` or `bind`, after a test of the engine.

    Args:
        engine: The engine.
        features: The engine's features.
        repository: The repository.
        run: Directory of the current run; its name is the run's id.

    Raises:
        UnsupportedError: Containers cannot use files of this machine.
    """
    if not may_overlay(features, repository):
        return "bind"
    known = repository.state_dir / "overlay"
    if known.exists() and known.read_text() == features.version:
        return "overlay"
    if not probe(engine, repository, run, overlay=True):
        if not probe(engine, repository, run, overlay=False):
            raise UnsupportedError(
                "the engine does not see the files of this machine, or its containers "
                "cannot write to them",
                hint="use a local Docker daemon that root started; `orchestrator doctor` "
                "checks this",
            )
        return "bind"
    known.write_text(features.version)
    return "overlay"


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
    """Return whether a container can write a file through a mount.

    Args:
        engine: The engine.
        repository: The repository.
        run: Directory for the test files; its name is a run's id, for the container's label.
        overlay: Test an overlay; otherwise a bind mount.
        runtime: The OCI runtime of the container. Default: the engine's own.
    """
    root = run / PROBE
    # A process that died may have left test files.
    remove_tree(root)
    layers = {name: root / name for name in ("lower", "upper", "work")}
    for path in layers.values():
        path.mkdir(parents=True)
    uid, gid = worker_user(0)
    for path in layers.values():
        os.chown(path, uid, gid)
    upper = layers["upper"]
    mount = (
        OverlayMount(lower=layers["lower"], upper=upper, work=layers["work"], target=WORKSPACE)
        if overlay
        else BindMount(source=upper, target=WORKSPACE, read_only=False)
    )
    spec = ContainerSpec(
        name=f"orchestrator-{run.name}-probe",
        image=BASE_IMAGE,
        command=("sh", "-c", "echo yes > probe"),
        user=f"{uid}:{gid}",
        workdir=WORKSPACE,
        labels={
            MANAGED: "true",
            RUN: run.name,
            ROLE: "probe",
            REPOSITORY: str(repository.common_dir),
        },
        mounts=(mount,),
        runtime=runtime,
    )
    try:
        container = engine.start(spec)
        try:
            container.wait(_PROBE_TIMEOUT)
        finally:
            container.remove()
        return (upper / "probe").exists()
    except (EngineError, TimeoutError):
        return False
    finally:
        remove_tree(root)
