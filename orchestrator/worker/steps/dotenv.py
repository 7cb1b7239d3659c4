"""Write a worker's ports and service addresses into an untracked file such as `.env`.

Existing lines, from a copied file of the user or from the setup commands, stay above the
orchestrator's lines.
"""

import re
from collections.abc import Mapping

from orchestrator.base.errors import ConfigError, EngineError, OrchestratorError
from orchestrator.base.files.bundle import bundle
from orchestrator.base.text.sanitize import output_line
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.spec import BindMount, ContainerSpec
from orchestrator.engine.places.place import TREE, Part, Place, Start, Step, StepLimits
from orchestrator.repository.repository import Repository
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.in_container.write_lines import IN_THE_WAY, InTheWayError, write_lines
from orchestrator.worker.workspace.layout import WORKSPACE
from orchestrator.worker.workspace.mounts import Workspace

DOTENV_STEP = "dotenv"
"""Name of the step that writes the `dotenv` file, in a place with volumes."""
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+=,-]*")
_PROGRAM = "orchestrator.worker.in_container.write_lines"
_PATIENCE = 60.0
"""Maximum number of seconds for writing the file in a container."""
_MEMORY = 128 * 1024**2


def check_dotenv(repository: Repository, base: str, path: str | None) -> None:
    """Reject a `dotenv` file that git tracks: the variables added to it would be committed.

    Raises:
        ConfigError: The base commit contains the file.
    """
    if path is not None and repository.git.run("ls-tree", "--full-tree", base, "--", path):
        raise ConfigError(
            f"the `dotenv` file `{path}` is tracked by git, so its lines would be committed",
            key="dotenv.tracked",
            hint="use an untracked file, such as `.env.local`",
        )


def dotenv_step(worker: WorkerContext, workspace: Workspace) -> tuple[Step, Part]:
    """Return the step that writes the `dotenv` file in a place with volumes, and what it sees."""
    mount = BindMount(source=workspace.tree, target=WORKSPACE, read_only=False)
    spec = ContainerSpec(
        name=f"{worker.name}-{DOTENV_STEP}",
        image=BASE_IMAGE,
        command=(),
        user=workspace.user_text,
        workdir="/",
        labels=worker.labels(role=DOTENV_STEP),
        memory=_MEMORY,
        pids=32,
    )
    limits = StepLimits(timeout=_PATIENCE, output=64 * 1024)
    step = Step(name=DOTENV_STEP, spec=spec, limits=limits)
    return step, Part(name=TREE, mount=mount, seen_by=frozenset({DOTENV_STEP}))


def write_dotenv(
    worker: WorkerContext, workspace: Workspace, place: Place, of_services: Mapping[str, str]
) -> None:
    """Write or update a worker's `dotenv` file before a container with the worktree starts.

    Args:
        worker: The worker.
        workspace: Its files.
        place: Its place.
        of_services: Variables with the addresses of the worker's services.

    Raises:
        OrchestratorError: A directory or link has the path of the `dotenv` file.
        OSError: The disk is full.
    """
    path = worker.config.project.dotenv
    if path is None:
        return
    variables = {**worker.ports.variables(), **of_services}
    variables |= {n: v for n, v in worker.config.isolation.env.items() if n in variables}
    lines = "".join(f"{name}={_quote(value)}\n" for name, value in variables.items())
    try:
        if DOTENV_STEP in (step.name for step in place.spec.steps):
            _write_in_place(place, path, lines)
        else:
            trees = (workspace.tree, workspace.worktree.path)
            count = 2 if workspace.mode == "overlay" else 1
            write_lines(trees[:count], path, lines, workspace.user)
    except InTheWayError as error:
        raise OrchestratorError(
            f"the `dotenv` file `{path}` cannot be written: a directory or a link is in its place, "
            "or its path leads through a file or a link",
            key="dotenv.blocked",
        ) from error


def _write_in_place(place: Place, path: str, lines: str) -> None:
    """Write lines into a file of the tree, in a container of the worker's place.

    Raises:
        InTheWayError: The file cannot be written because of another one.
        EngineError: The container failed.
    """
    program = ("python3", "-I", "-S", "-c", bundle(_PROGRAM), WORKSPACE, path, lines)
    container = place.order(DOTENV_STEP, Start(command=program))
    try:
        container.start()
        said = b"".join(chunk.data for chunk in container.logs())
        code = container.wait(_PATIENCE).exit_code
    finally:
        container.remove()
    if code == IN_THE_WAY:
        raise InTheWayError
    if code:
        last = output_line(said.decode("utf-8", "replace").strip().rpartition("\n")[2])
        raise EngineError(
            f"the `dotenv` file `{path}` cannot be written: {last}", key="dotenv.write-failed"
        )


def _quote(value: str) -> str:
    """Quote a value so that shells and libraries for `.env` files read the same text."""
    if _PLAIN.fullmatch(value):
        return value
    if "'" not in value:
        return f"'{value}'"
    return '"' + re.sub(r'([\\"$`])', r"\\\1", value) + '"'
