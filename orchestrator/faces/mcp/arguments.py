"""Arguments of the tools: ids of runs, numbers and texts of bounded length, and no path."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.config.workflow.model import MOST_TASKS

MOST_WAIT = 50
"""Maximum number of seconds that a call waits: clients give up after 60."""
LONGEST_TASK = 64 * 1024
LONGEST_SPEC = 256 * 1024
_MOST_TASKS = 100

# protection: ids-of-runs-are-no-paths
Run = Annotated[
    str,
    Field(
        pattern=r"^[0-9A-Za-z]([0-9A-Za-z-]{0,62}[0-9A-Za-z])?$",
        description="Id of the run, or its first characters. Default: the newest run.",
    ),
]
Number = Annotated[int, Field(ge=1, le=999_999, description="Number of the worker.")]
Numbers = Annotated[tuple[Number, ...], Field(max_length=MOST_TASKS)]
Offset = Annotated[int, Field(ge=0, le=2**53)]
Model = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$")]
Token = Annotated[
    str,
    Field(pattern=r"^[0-9a-f]{32}$", description="Token of the preview from the tool `conflicts`."),
]
Form = Literal["merge", "squash", "rebase"]


class Arguments(BaseModel):
    """Arguments of a tool; unknown ones are refused."""

    # protection: unknown-arguments-are-refused
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ListRuns(Arguments):
    """Arguments of `runs`."""

    most: int = Field(default=20, ge=1, le=100, description="Maximum number of runs.")


class OfRun(Arguments):
    """Arguments of a tool that reads a run."""

    run: Run | None = None


class OfWorkers(OfRun):
    """Arguments of `run`."""

    first: int = Field(
        default=1, ge=1, le=999_999, description="Number of the first worker to list."
    )


class OfWorker(OfRun):
    """Arguments of a tool that reads a worker."""

    worker: Number


class ReadLog(OfWorker):
    """Arguments of `log`."""

    name: str = Field(
        default="stdout",
        pattern=r"^[a-z][A-Za-z0-9_.-]{0,99}$",
        description="Name of the log, as in the field `logs` of an answer.",
    )
    offset: Offset | None = Field(
        default=None, description="First byte to read. Default: the end of the log."
    )


class ReadDiff(OfWorker):
    """Arguments of `diff`."""

    form: Literal["stat", "patch"] = Field(
        default="stat", description="`stat`: changed files with numbers of lines; `patch`: lines."
    )
    offset: Offset = Field(
        default=0, description="With `stat`, the number of files to skip; with `patch`, of bytes."
    )


class Preview(OfRun):
    """Arguments of `conflicts`."""

    workers: Numbers = Field(
        default=(),
        description="Workers to merge, in this order, even if they failed. Default: all that "
        "succeeded.",
    )
    form: Form = Field(
        default="merge",
        description="A merge commit for each worker, one commit for each, or its own commits.",
    )


class Wait(OfRun):
    """Arguments of `wait`."""

    cursor: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{16}$",
        description="`cursor` of an earlier answer: return once a worker's state differs from "
        "that answer. Default: wait for the end of the run.",
    )
    seconds: int = Field(default=MOST_WAIT, ge=0, le=MOST_WAIT, description="Longest time to wait.")


class StartRun(Arguments):
    """Arguments of a tool that starts a run."""

    budget: float | None = Field(
        default=None,
        gt=0,
        le=10**6,
        description="Budget of the run in USD. Default: all that the server may still spend, so "
        "that no other run starts meanwhile.",
    )


class RunTasks(StartRun):
    """Arguments of `run_tasks`."""

    tasks: tuple[
        Annotated[str, Field(min_length=1, max_length=LONGEST_TASK, pattern=r"\S")], ...
    ] = Field(
        min_length=1,
        max_length=_MOST_TASKS,
        description="Task of each worker. Repeat a task to let several workers try it.",
    )
    models: tuple[Model, ...] = Field(
        default=(), max_length=_MOST_TASKS, description="Model of each worker, in the same order."
    )
    workers: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="Number of workers at the same time; the server limits it.",
    )
    timeout: float | None = Field(
        default=None,
        gt=0,
        le=10**6,
        description="Time limit of each worker in seconds, below that of the configuration.",
    )


class RunSpec(StartRun):
    """Arguments of `run_spec`."""

    spec: str = Field(
        min_length=1, max_length=LONGEST_SPEC, description="A workflow as YAML or JSON text."
    )


class Stop(OfRun):
    """Arguments of `stop`."""

    workers: Numbers = Field(default=(), description="Workers to stop. Default: all of the run.")
    kill: bool = Field(default=False, description="Whether to leave out the grace period.")


class Merge(Arguments):
    """Arguments of `merge`."""

    token: Token
