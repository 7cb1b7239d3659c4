"""Try the commands that were found, because only a command that works may be active in a file.

A command whose program is missing in the image is not tried.
"""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.base.text.sanitize import one_line
from orchestrator.engine.interface.labels import for_a_moment
from orchestrator.engine.interface.protocol import Engine
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.faces.cli.init.languages import ENSUREPIP, Command
from orchestrator.faces.cli.init.render import Choice, cleaning
from orchestrator.faces.cli.init.scan import Findings
from orchestrator.runs.purposes.trial import Trial

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
    tries = _Tries(findings=findings, trial=trial, limit=limit, tell=tell)
    whole = findings.make_test
    if whole is not None and choice.runs(whole):
        for setup in filter(choice.runs, findings.setup):
            tries.run([setup], [])
        tries.run([setup for setup in findings.setup if setup.line in tries.worked], [whole])
        if whole.line in tries.worked:
            return tries.problems
    for tools in findings.tools:
        setups = [tools.setup] if tools.setup and choice.runs(tools.setup) else []
        checks = list(filter(choice.runs, tools.checks))
        if any(setup.line in tries.problems for setup in setups):
            tries.problems |= {check.line: _NEEDS_SETUP for check in checks}
        elif checks or any(setup.line not in tries.worked for setup in setups):
            tries.run(setups, checks)
    return tries.problems


@dataclass(kw_only=True)
class _Tries:
    """The commands that worked, and why others do not work."""

    findings: Findings
    trial: Trial
    limit: float
    tell: Callable[[str], None]
    problems: dict[str, str] = field(default_factory=dict)
    worked: set[str] = field(default_factory=set)

    def run(self, setups: list[Command], checks: list[Command]) -> None:
        for command in checks or setups:
            self.tell(f"trying `{one_line(command.line)}`")
        tried = self.trial.run(
            [command.line for command in setups], [command.line for command in checks],
            cleaning(self.findings, setups), limit=self.limit,
        )  # fmt: skip
        of_checks = tried.checks
        if setups and tried.setup is not None:
            of_checks = (_NEEDS_SETUP,) * len(checks)
        said = (*((setup, tried.setup) for setup in setups), *zip(checks, of_checks, strict=True))
        for command, problem in said:
            if problem is None:
                self.worked.add(command.line)
            elif command.line not in self.worked:
                self.problems[command.line] = one_line(problem, limit=_LONGEST)
                shown = f"`{one_line(command.line)}` is written as a comment"
                self.tell(f"  {shown}: {self.problems[command.line]}")


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
            labels=for_a_moment(str(common_dir)),
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
