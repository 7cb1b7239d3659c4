"""The table: every attack, what it is, and what it did in each arrangement."""

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from tests.assurance.attacks.attack import Attack
from tests.assurance.attacks.campaign import Campaign, Observation
from tests.assurance.attacks.plain import BOUNDS

PAGE = Path(__file__).parents[3] / "docs" / "attacks.md"
PLAIN = "plain"
UNHARMED = "unharmed"
_GOOD, _NONE = "✓", "-"
_SHOWN = 2
"""Harms that a cell names."""
_LONGEST = 80
"""Characters of a harm in a cell."""
_SAID = {"fsck:": "git finds bad objects", "git is broken:": "git is broken"}
"""What takes many words."""
_HEAD = """# Hostile tasks and what they do

Made by `pytest tests/assurance/attacks --measure-plain --write-table`, which takes minutes and
needs root. Each task is the file of `tests/assurance/attacks/corpus` that has the attack's name.

- **plain** is `docker run -v` of the repository, as root, and the user's git on the host
  afterwards: what the task harmed there. So that it does not take the machine with it, each has at
  most {bounds}. Without those it would have been worse.
- **root** and **user** are `orchestrator parallel`, run by root and by an ordinary user who may use
  the engine; **overlay** and **bind** are the two ways in which a worktree is mounted.
- ✓ is: the host, the repository, its refs and objects, the siblings and the report are unharmed,
  the run ended in time, the task's own honest commit arrived, and nothing was left behind.
- `-` is: not measured. What a limit concerns does not differ between *overlay* and *bind*.

"""


class Table:
    """Collects what was observed."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, str]] = {}
        self.attacks: dict[str, Attack] = {}
        self.columns: list[str] = []

    def add(self, observation: Observation, *, column: str) -> None:
        """Note what one attack did in one arrangement."""
        name = observation.attack.name
        self.attacks[name] = observation.attack
        if column not in self.columns:
            self.columns.append(column)
        self.rows.setdefault(name, {})[column] = _summary(observation.harms)

    def add_all(self, made: Future[Campaign], attacks: Sequence[Attack], *, column: str) -> None:
        """Note what came of a run; one that broke off is a harm of all that took part in it."""
        error = made.exception()
        observed = [Observation(a, [f"broke off: {error}"]) for a in attacks]
        for observation in observed if error else made.result().observations:
            self.add(observation, column=column)

    def _columns(self) -> list[str]:
        return sorted(self.columns, key=lambda column: (column != PLAIN, column))

    def _names(self) -> list[str]:
        return sorted(self.rows, key=lambda name: self.attacks[name].number)

    def text(self) -> str:
        """Give it for a terminal: what was harmed, in a word."""
        columns = self._columns()
        lines = [f"{'attack':26}" + "".join(f"{column:16}" for column in columns)]
        for name in self._names():
            cells = [self.rows[name].get(column) for column in columns]
            words = ["" if c is None else c if c == UNHARMED else "HARMED" for c in cells]
            lines.append(f"{name:26}" + "".join(f"{word:16}" for word in words))
        return "\n".join(lines)

    def page(self) -> str:
        """Give it as a page of the documentation."""
        columns = self._columns()
        lines = [
            "| attack | what it does | " + " | ".join(columns) + " |",
            "| --- | --- |" + " --- |" * len(columns),
        ]
        for name in self._names():
            cells = [_cell(self.rows[name].get(column)) for column in columns]
            what = _escaped(self.attacks[name].what.rstrip("."))
            lines.append(f"| {name} | {what} | " + " | ".join(cells) + " |")
        return _HEAD.format(bounds=BOUNDS) + self._sum(columns) + "\n" + "\n".join(lines) + "\n"

    def _sum(self, columns: Sequence[str]) -> str:
        parts = []
        for column in columns:
            found = [row[column] for row in self.rows.values() if column in row]
            harmed = sum(cell != UNHARMED for cell in found)
            parts.append(f"{column}: {harmed} of {len(found)}")
        return f"{len(self.rows)} attacks. What harmed: {'; '.join(parts)}.\n"


def _summary(harms: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(map(_short, harms)))
    if not distinct:
        return UNHARMED
    rest = f"; {len(distinct) - _SHOWN} more" if len(distinct) > _SHOWN else ""
    return "; ".join(distinct[:_SHOWN]) + rest


def _short(harm: str) -> str:
    line = " ".join(harm.split())
    for begins, said in _SAID.items():
        if line.startswith(begins):
            return said
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _cell(found: str | None) -> str:
    if found is None:
        return _NONE
    return _GOOD if found == UNHARMED else _escaped(found)


def _escaped(text: str) -> str:
    for character in "\\|<>*_[]":
        text = text.replace(character, f"\\{character}")
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
