"""An agent that resolves conflicts by a script, without a container."""

from collections.abc import Callable

from orchestrator.review.landing.conflict import Conflict, Proposal
from tests.support.merges import NUMBERS, Content, World

Answer = dict[str, Content] | Proposal


class ScriptedAgent:
    """Answers each question with the next answer: files of a commit, or a whole proposal."""

    def __init__(self, world: World, *answers: Answer, findings: str = "") -> None:
        self._world = world
        self._answers = list(answers)
        self._findings = findings
        self.asked: list[tuple[Conflict, str, int]] = []
        self.forgotten: list[Conflict] = []

    def ask(self, conflict: Conflict, description: str, attempt: int) -> Proposal:
        self.asked.append((conflict, description, attempt))
        answer = self._answers.pop(0)
        if isinstance(answer, Proposal):
            return answer
        commit = self._world.commit(answer, conflict.commit)
        return Proposal(run_id=f"run-{attempt}", commit=commit, findings=self._findings)

    def forget(self, conflict: Conflict) -> None:
        self.forgotten.append(conflict)


def numbers(change: Callable[[str], str]) -> str:
    """Return the file of numbers with changed lines."""
    return "".join(change(line) for line in NUMBERS.splitlines(keepends=True))


def with_line(old: str, *new: str) -> str:
    """Return the file of numbers with one line replaced."""
    return numbers(lambda line: "".join(f"{one}\n" for one in new) if line == f"{old}\n" else line)
