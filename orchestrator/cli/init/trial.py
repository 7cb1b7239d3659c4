"""Try the commands that were found, because only a command that works may be active in a file.

A command whose program is missing in the image is not tried.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.cli.init.findings import Command, Findings
from orchestrator.cli.init.languages import ENSUREPIP
from orchestrator.cli.init.render import Choice, cleaning
from orchestrator.engine.labels import MANAGED, REPOSITORY, ROLE
from orchestrator.engine.protocol import Engine
from orchestrator.engine.spec import ContainerSpec
from orchestrator.runs.trial import Trial
from orchestrator.text.sanitize import one_line

BASE_PROGRAMS = frozenset({"git", "make", "python3"})
"""Programs of the base image, and thus of every image that is built on it."""
_SCRIPT = f"""\
for program; do
  case $program in
    {ENSUREPIP}) python3 -c "import ensurepip, venv" 2> /dev/null ;;
    ./*) false ;;
    *) command -v -- "$program" > /dev/null ;;
  esac && echo "$program"
done"""
_PATIENCE = 30.0
_MOST_OUTPUT = 64 * 1024
_NOBODY = "65534:65534"
_LONGEST = 160
_NEEDS_SETUP = "needs the setup command, which does not work"


def problems_of(
    findings: Findings, choice: Choice, trial: Trial, *, limit: float, tell: Callable[[str], None]
) -> dict[str, str]:
    """Run the found commands, and return why commands do not work, by command line.

    Args:
        findings: What was found in the project.
        choice: The programs that the image has; commands without their program are not run.
        trial: Runs the commands.
        limit: Maximum number of seconds of the setup commands, and of each check.
        tell: Shows progress.
    """
    tries = _Tries(findings=findings, choice=choice, trial=trial, limit=limit, tell=tell)
    whole = findings.make_test
    if whole is not None and choice.runs(whole):
        setups = [command for command in findings.setup if tries.try_setup(command)]
        if tries.try_checks(setups, [whole]):
            return tries.problems
    for tools in findings.tools:
        setup = tools.setup if tools.setup and choice.runs(tools.setup) else None
        checks = [check for check in tools.checks if choice.runs(check)]
        if setup is not None and not checks:
            tries.try_setup(setup)
        elif checks and (setup is None or tries.works(setup)):
            tries.try_checks([setup] if setup else [], checks)
        else:
            tries.problems |= {check.line: _NEEDS_SETUP for check in checks}
    return tries.problems


@dataclass(kw_only=True)
class _Tries:
    """The commands that were tried, and why they do not work."""

    findings: Findings
    choice: Choice
    trial: Trial
    limit: float
    tell: Callable[[str], None]
    problems: dict[str, str] = field(default_factory=dict)
    worked: set[str] = field(default_factory=set)

    def works(self, setup: Command) -> bool:
        return setup.line not in self.problems

    def try_setup(self, setup: Command) -> bool:
        """Run a setup command unless that was done, and return whether it works."""
        if self.choice.runs(setup) and setup.line not in {*self.problems, *self.worked}:
            self._run([setup], [])
        return setup.line in self.worked

    def try_checks(self, setups: list[Command], checks: list[Command]) -> bool:
        """Run checks after setup commands, and return whether all of them work."""
        self._run(setups, checks)
        return all(check.line in self.worked for check in checks)

    def _run(self, setups: list[Command], checks: list[Command]) -> None:
        for command in checks or setups:
            self.tell(f"trying `{one_line(command.line)}`")
        tried = self.trial.run(
            [command.line for command in setups], [command.line for command in checks],
            cleaning(self.findings, setups), limit=self.limit,
        )  # fmt: skip
        said: list[tuple[Command, str | None]] = [(command, tried.setup) for command in setups]
        if tried.setup is None or not setups:
            said += zip(checks, tried.checks, strict=True)
        else:
            said += [(command, _NEEDS_SETUP) for command in checks]
        for command, problem in said:
            if problem is None:
                self.worked.add(command.line)
            elif command.line not in self.worked:
                self.problems[command.line] = one_line(problem, limit=_LONGEST)
                self.tell(f"  `{one_line(command.line)}` is written as a comment: "
                           f"{self.problems[command.line]}")  # fmt: skip


def reasons_not_tried(commands: Iterable[Command], why: str) -> Iterator[tuple[str, str]]:
    """Yield each command line with the reason why it was not tried."""
    return ((command.line, f"not tried: {why}") for command in commands)


def programs_in(
    engine: Engine, image: str, wanted: Iterable[str], common_dir: Path
) -> frozenset[str] | None:
    """Return the programs of `wanted` that an image has; None if that cannot be determined.

    Args:
        engine: The container engine.
        image: The image.
        wanted: Names of programs.
        common_dir: The repository's git directory; labels the container, so that cleanup finds it.

    Raises:
        EngineError: The engine does not answer.
    """
    names = sorted(set(wanted))
    if engine.image_info(image) is None:
        return None
    container = engine.start(
        ContainerSpec(
            name=f"orchestrator-init-{secrets.token_hex(6)}",
            image=image,
            command=("sh", "-c", _SCRIPT, "sh", *names),
            user=_NOBODY,
            workdir="/",
            labels={MANAGED: "true", REPOSITORY: str(common_dir), ROLE: "probe"},
        )
    )
    printed = b""
    try:
        for chunk in container.logs():
            if chunk.stream == "stdout":
                printed += chunk.data[: _MOST_OUTPUT - len(printed)]
        container.wait(_PATIENCE)
    except TimeoutError:
        return None
    finally:
        container.remove()
    return frozenset(names) & frozenset(printed.decode(errors="replace").split())
