"""The table of `tests/assurance/attacks.md`: every attack, and its harms in each arrangement."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from tests.assurance.attacks.attack import Attack, every
from tests.assurance.attacks.campaign import Campaign, Observation
from tests.assurance.attacks.plain import BOUNDS

PAGE = Path(__file__).parents[1] / "attacks.md"
PLAIN = "plain"
UNHARMED = "unharmed"
_FIRST = "| attack | what it does | "
_GOOD, _NONE = "✓", "-"
_SHOWN = 2
"""Maximum number of harms in a cell."""
_LONGEST = 80
"""Maximum number of characters of a harm in a cell."""
_SAID = {"fsck:": "git finds bad objects", "git is broken:": "git is broken"}
"""Long descriptions of harms, and their short forms for a cell."""
_HEAD = """# Hostile tasks and what they do

`pytest tests/assurance/attacks --measure-plain --write-table` writes this page; it takes minutes
and needs root. Running some of the tests replaces only their cells. Each task is the file in
`tests/assurance/attacks/corpus` with the attack's name.

- **plain** is `docker run -v` of the repository, as root, followed by the user's git on the host;
  the cell shows the harm. To protect the machine that measures, each has at
  most {bounds}. Without these limits the harm would be greater.
- **root** and **user** are `orchestrator parallel`, run by root and by an unprivileged user who may
  use the engine; **overlay** and **bind** are the two ways to mount a worktree.
- ✓ means that the host, the repository, its refs and objects, other workers and the report are
  unharmed, the run ended in time, the task's honest commit arrived, and nothing was left behind.
- `-` means not measured, because limits do not differ between *overlay* and *bind*.
- Socket buffers are not measured; see
  [what is not promised](../../docs/security.md#what-is-not-promised).

"""


class Table:
    """Collects observations."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, str]] = {}
        self.attacks: dict[str, Attack] = {}
        self.columns: list[str] = []

    def add(self, observation: Observation, *, column: str) -> None:
        """Record the observation of one attack in one arrangement."""
        name = observation.attack.name
        self.attacks[name] = observation.attack
        if column not in self.columns:
            self.columns.append(column)
        self.rows.setdefault(name, {})[column] = _summary(observation.harms)

    def add_all(self, made: Future[Campaign], attacks: Sequence[Attack], *, column: str) -> None:
        """Record a campaign; an error that ended it counts as a harm of each of its attacks."""
        error = made.exception()
        observed = [Observation(a, [f"broke off: {error}"]) for a in attacks]
        for observation in observed if error else made.result().observations:
            self.add(observation, column=column)

    def _names(self) -> list[str]:
        return sorted(self.rows, key=lambda name: self.attacks[name].number)

    def text(self) -> str:
        """Return a summary of the harms for the terminal."""
        columns = _ordered(self.columns)
        lines = [f"{'attack':26}" + "".join(f"{column:16}" for column in columns)]
        for name in self._names():
            cells = [self.rows[name].get(column) for column in columns]
            words = ["" if c is None else c if c == UNHARMED else "HARMED" for c in cells]
            lines.append(f"{name:26}" + "".join(f"{word:16}" for word in words))
        return "\n".join(lines)

    def page(self, before: str = "") -> str:
        """Return the page with the new observations; other cells are copied from the old page."""
        rows = {attack.name: _cells_of(before).get(attack.name, {}) for attack in every()}
        for name, row in self.rows.items():
            rows[name] = rows.get(name, {}) | {c: _cell(found) for c, found in row.items()}
        attacks = self.attacks | {attack.name: attack for attack in every()}
        rows = {name: row for name, row in rows.items() if row}
        columns = _ordered({column for row in rows.values() for column in row})
        lines = [
            f"{_FIRST}{' | '.join(columns)} |",
            "| --- | --- |" + " --- |" * len(columns),
        ]
        for name in sorted(rows, key=lambda name: attacks[name].number):
            what = _escaped(attacks[name].what.rstrip("."))
            cells = " | ".join(rows[name].get(column, _NONE) for column in columns)
            lines.append(f"| {name} | {what} | {cells} |")
        told = _summed_up(list(rows.values()), columns)
        return _HEAD.format(bounds=BOUNDS) + told + "\n" + "\n".join(lines) + "\n"


def _ordered(columns: Iterable[str]) -> list[str]:
    return sorted(columns, key=lambda column: (column != PLAIN, column))


def _cells_of(page: str) -> dict[str, dict[str, str]]:
    """Return the measured cells of a page by attack and column."""
    lines = [line.removesuffix(" |") for line in page.splitlines() if line.startswith("| ")]
    columns = next((one for one in lines if one.startswith(_FIRST)), "").split(" | ")[2:]
    rows = [line.removeprefix("| ").split(" | ") for line in lines if line[2].isdigit()]
    return {
        name: {c: cell for c, cell in zip(columns, cells, strict=True) if cell != _NONE}
        for name, _, *cells in rows
    }


def _summed_up(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> str:
    parts = []
    for column in columns:
        found = [row[column] for row in rows if column in row]
        harmed = sum(cell != _GOOD for cell in found)
        parts.append(f"{column}: {harmed} of {len(found)}")
    return f"{len(rows)} attacks. Attacks that did harm: {'; '.join(parts)}.\n"


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


def _cell(found: str) -> str:
    return _GOOD if found == UNHARMED else _escaped(found)


def _escaped(text: str) -> str:
    for character in "\\|<>*_[]":
        text = text.replace(character, f"\\{character}")
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
