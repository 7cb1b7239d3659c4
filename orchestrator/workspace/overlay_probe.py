"""Test whether the engine can mount overlays, and choose how workers see their worktrees."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from orchestrator.engine.features import EngineFeatures
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.labels import MANAGED, REPOSITORY, ROLE, RUN
from orchestrator.engine.protocol import ContainerEngine
from orchestrator.engine.spec import BindMount, ContainerSpec, OverlayMount
from orchestrator.errors import ConfigError, EngineError, UnsupportedError
from orchestrator.files.atomic import write_atomically
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
    mode: Mode = "overlay" if may_overlay(features, repository) else "bind"
    if mode == "bind" and not features.address:
        # The engine is part of this process.
        return mode
    known = repository.state_dir / "overlay"
    # The same repository may be at another path in a container that uses the engine of its host.
    # The socket of another machine's engine may have been forwarded to the path of this one's.
    # protection: mounts-are-tested-for-each-engine
    found = f"{mode} {features.version} {features.fingerprint} {repository.state_dir}"
    if known.exists() and known.read_text() == found:
        return mode
    if probe(engine, repository, run, overlay=mode == "overlay"):
        write_atomically(known, found)
        return mode
    if mode == "bind" or not probe(engine, repository, run, overlay=False):
        raise UnsupportedError(
            f"the engine does not see the files of this machine in {repository.common_dir}, or its "
            "containers cannot write to them",
            hint="in a container that uses the engine of its host, such as a CI job, mount the "
            "repository at the same path as on the host; elsewhere, use a local Docker daemon that "
            "root started",
        )
    return "bind"


def check_memory(
    engine: ContainerEngine, features: EngineFeatures, repository: Repository, run: Path, root: Path
) -> None:
    """Check that containers get the files in a directory in memory, where secrets are written.

    Args:
        engine: The engine.
        features: The engine's features.
        repository: The repository.
        run: Directory of the current run; its name is the run's id.
        root: The directory.

    Raises:
        ConfigError: Containers do not see the directory.
    """
    known = repository.state_dir / "memory"
    # A container has a file system of its own in memory, unless it was given that of its host.
    found = f"{features.version} {root} {root.stat().st_dev}"
    if known.exists() and known.read_text() == found:
        return
    with tempfile.TemporaryDirectory(prefix="orchestrator-probe-", dir=root) as directory:
        shown = Path(directory)
        shown.chmod(0o755)
        (shown / "shown").touch()
        mount = BindMount(source=shown, target=WORKSPACE, read_only=True)
        if not _succeeds(engine, _spec(repository, run, mount, "test -e shown")):
            raise ConfigError(
                f"the engine does not see {root} of this machine, where secrets are kept in memory",
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
        labels={
            MANAGED: "true",
            RUN: run.name,
            ROLE: "probe",
            REPOSITORY: str(repository.common_dir),
        },
        mounts=(mount,),
    )


def _succeeds(engine: ContainerEngine, spec: ContainerSpec) -> bool:
    try:
        container = engine.start(spec)
        try:
            return container.wait(_PROBE_TIMEOUT).exit_code == 0
        finally:
            container.remove()
    except (EngineError, TimeoutError):
        return False
