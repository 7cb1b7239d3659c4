"""The options of `parallel`. None is "not given": the settings know the defaults and the ranges."""

from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli.output.formats import size
from orchestrator.config.container import Isolation, Limits
from orchestrator.config.project import Project
from orchestrator.config.run import ParallelConfig, Triggers

_DEFAULTS: dict[str, Any] = {
    name: field.default
    for model in (ParallelConfig, Limits, Isolation, Triggers, Project)
    for name, field in model.model_fields.items()
}


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _setting(name: str, metavar: str, about: str, *, in_bytes: bool = False) -> Any:  # noqa: ANN401
    default = _DEFAULTS[name]
    if isinstance(default, (int, float)):
        default = size(int(default)) if in_bytes else _number(default)
    text = f"{about} [default: {default}]" if default else about
    return typer.Option("--" + name.replace("_", "-"), metavar=metavar, help=text)


def _several(option: str, metavar: str, about: str) -> Any:  # noqa: ANN401
    return typer.Option(option, metavar=metavar, help=about)


Text = str | None
Texts = list[str] | None

Positional = Annotated[Text, typer.Argument(metavar="TASK", help="The first task.")]
Task = Annotated[Texts, _several("--task", "CMD", "A task; give it again for the next worker.")]
Workers = Annotated[
    Text, _setting("workers", "N", "Workers at one time: 1-10 (see `max_workers`), or `auto`.")
]
Model = Annotated[
    Text, _setting("model", "NAME", "Model of the workers that `--models` does not reach.")
]
Models = Annotated[Text, _setting("models", "CSV", "Models of worker 1, 2, ..., as `a,b,c`.")]
Agent = Annotated[Text, _setting("agent", "NAME", "The profile given to the agent program.")]
AgentCli = Annotated[
    Text, _setting("agent_cli", "NAME", "The agent program; `shell` runs tasks as commands.")
]
MaxSteps = Annotated[Text, _setting("max_steps", "N", "Steps an agent may take.")]
Budget = Annotated[Text, _setting("budget_per_worker", "USD", "USD that a worker may spend.")]
TokensPerWorker = Annotated[
    Text, _setting("tokens_per_worker", "N", "Tokens that a worker may take.")
]
BudgetTotal = Annotated[
    Text, _setting("budget_total", "USD", "USD that all workers may spend together.")
]
TokensTotal = Annotated[
    Text, _setting("tokens_total", "N", "Tokens that all workers may take together.")
]
Timeout = Annotated[
    Text, _setting("timeout_per_worker", "SECONDS", "How long a worker may take; 0 is no limit.")
]
ApiBase = Annotated[Text, _setting("api_base", "URL", "Base URL of the model's API.")]
Image = Annotated[
    Text, _setting("image", "IMAGE", "Container image, instead of the agent program's own.")
]
Cpus = Annotated[Text, _setting("cpus", "N", "CPUs of a worker. [default: 2, or all]")]
Memory = Annotated[
    Text, _setting("memory", "SIZE", "Memory of a worker, as `512m`.", in_bytes=True)
]
Pids = Annotated[Text, _setting("pids", "N", "Processes and threads of a worker.")]
Disk = Annotated[Text, _setting("disk", "SIZE", "What a worker may write, as `2g`.", in_bytes=True)]
Inodes = Annotated[Text, _setting("inodes", "N", "Files and directories a worker may make.")]
LogLimit = Annotated[
    Text, _setting("log_limit", "SIZE", "What a worker may print, as `100m`.", in_bytes=True)
]
IdleTimeout = Annotated[
    Text, _setting("idle_timeout", "SECONDS", "How long a worker may print nothing; 0 is no limit.")
]
Grace = Annotated[Text, _setting("grace", "SECONDS", "Time between SIGTERM and SIGKILL.")]
Runtime = Annotated[Text, _setting("runtime", "NAME", "OCI runtime, as `runsc`.")]
Network = Annotated[
    Text, _setting("network", "none|open", "`open`: the internet, no private network.")
]
Allow = Annotated[
    Texts, _several("--allow", "HOST[:PORT]", "A private host to reach with `open`; repeatable.")
]
Ports = Annotated[
    Text, _setting("ports", "CSV", "Container ports to publish on 127.0.0.1, as `3000,3010`.")
]
Env = Annotated[
    Texts, _several("--env", "K[=V]", "A variable for workers; K alone takes your value.")
]
EnvFile = Annotated[Texts, _several("--env-file", "FILE", "A file of lines as `--env` takes them.")]
Secret = Annotated[
    Texts, _several("--secret", "NAME[=@FILE]", "Your variable as a file in /run/secrets.")
]
Copy = Annotated[
    Texts, _several("--copy", "GLOB", "Untracked files to copy into each worktree; repeatable.")
]
Check = Annotated[
    Texts, _several("--check", "CMD", "A command that what it committed must pass; repeatable.")
]
CheckNetwork = Annotated[Text, _setting("check_network", "none|open", "The network of those.")]
Services = Annotated[
    Texts,
    _several("--service", "NAME=IMAGE", "A service of its own for each worker, as a database."),
]
Setup = Annotated[
    Texts, _several("--setup", "CMD", "A command in the worktree before the agent; repeatable.")
]
SetupTimeout = Annotated[
    Text, _setting("setup_timeout", "SECONDS", "How long all of those may take; 0 is no limit.")
]
SetupNetwork = Annotated[
    Text, _setting("setup_network", "none|open", "The network of those, instead of the worker's.")
]
Teardown = Annotated[
    Texts, _several("--teardown", "CMD", "A command in the worktree behind the agent; repeatable.")
]
Caches = Annotated[
    Texts,
    _several(
        "--cache",
        "NAME",
        "Downloads that `cache warm` kept: `pip`, `npm`, `uv`, `cargo`; repeatable.",
    ),
]
Dotenv = Annotated[
    Text,
    typer.Option(
        "--dotenv", metavar="FILE", help="Add ports and services to this file, as `.env`."
    ),
]
Fetch = Annotated[
    bool, typer.Option("--fetch", help="Fetch first from the remote of `--base origin/main`.")
]
Base = Annotated[
    Text, _setting("base", "REF", "The commit that workers start from, in any form git takes.")
]
WorktreeDir = Annotated[
    Text,
    _setting("worktree_dir", "TEMPLATE", "Directory of each worktree, as `../.worktrees/{id}`."),
]
Branch = Annotated[Text, _setting("branch", "TEMPLATE", "Branch of each worker, as `solve/{id}`.")]


def _from_here(file: str | None) -> str | None:
    """Return where a file is, to whoever goes on elsewhere."""
    return file and str(Path(file).absolute())


Context = Annotated[
    Text,
    typer.Option(
        "--context",
        metavar="FILE",
        help="A text file that every worker can read.",
        callback=_from_here,
    ),
]
ReadOnly = Annotated[
    bool | None,
    typer.Option(
        "--read-only/--no-read-only",
        help="Let workers look at their worktree, and write nothing there.",
        show_default=False,
    ),
]
IncludeUncommitted = Annotated[
    bool | None,
    typer.Option(
        "--include-uncommitted/--no-include-uncommitted",
        help="Start from the checkout with its uncommitted changes.",
        show_default=False,
    ),
]
Retries = Annotated[
    Text, _setting("retries", "N", "How often a worker that failed is started again.")
]
RetryDelay = Annotated[Text, _setting("retry_delay", "SECONDS", "Time before that.")]
RetryOn = Annotated[
    Text, _setting("retry_on", "CSV", "More reasons to start it again for, as `timeout,oom`.")
]
RetryFrom = Annotated[
    Text, _setting("retry_from", "base|keep", "`keep`: from what it had committed.")
]
RateLimitWait = Annotated[
    Text,
    _setting(
        "rate_limit_wait", "SECONDS", "How long a worker waits for an API that says 429; 0: not."
    ),
]
Stagger = Annotated[
    Text, _setting("stagger", "SECONDS", "Time between the start of one worker and the next.")
]
Silence = Annotated[Text, _setting("silence", "SECONDS", "Say when a worker prints nothing.")]
RepeatedErrors = Annotated[
    Text, _setting("repeated_errors", "N", "Say when an error line comes so often.")
]
Prompts = Annotated[
    Text, _setting("prompts", "SECONDS", "Say when it waits so long behind a question.")
]
Paths = Annotated[Text, _setting("paths", "CSV", "Where it is to make changes: `src,docs/*.md`.")]
Enforce = Annotated[
    Text, _setting("enforce", "ro", "`ro`: all outside `--paths` (directories) is read-only.")
]
OnTrigger = Annotated[Text, _setting("on_trigger", "warn|stop", "`stop`: stop it then.")]
Notify = Annotated[
    Text,
    _setting("notify", "COMMAND|URL", "Told of triggers, failed workers and the end, in JSON."),
]
FailFast = Annotated[
    bool | None,
    typer.Option(
        "--fail-fast/--no-fail-fast",
        help="Cancel all others once a worker failed for good.",
        show_default=False,
    ),
]
FailOn = Annotated[
    Text, _setting("fail_on", "any|all", "`all`: exit 0 as soon as one worker succeeded.")
]
Preset = Annotated[
    Text, _setting("preset", "NAME", "Defaults for a kind of work: `untrusted`, `ci`, `trusted`.")
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="Settings, instead of the repository's own file."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Nothing on stderr unless it goes wrong.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, not a table.")]
Summary = Annotated[bool, typer.Option("--summary", help="One line on stdout, not a table.")]
WhenBusy = Annotated[
    Text,
    typer.Option(
        "--when-busy",
        metavar="start|wait|leave",
        help="While another run of the repository goes on: `wait` for its end, or `leave` with 0.",
    ),
]
AtOnce = Annotated[
    bool | None,
    typer.Option(
        "--parallel/--no-parallel",
        help="`--no-parallel`: one task at a time, as `--workers 1`.",
        show_default=False,
    ),
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Go on in the background and print the run's id.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and touch nothing.")]
