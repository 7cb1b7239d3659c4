"""The table: every attack, what it is, and what it did in each arrangement."""

from pathlib import Path

from tests.attacks.campaign import Observation

PAGE = Path(__file__).parents[2] / "docs" / "attacks.md"
_HEAD = """# Hostile tasks and what they do

Made by `pytest tests/attacks --measure-plain --write-table`. *plain* is `docker run -v` of the
repository as root, and the user's git on the host afterwards. The other columns are `orchestrator
parallel`, by who ran it and by how the worktree was mounted. What a cell says is what was harmed:
the host, the repository, a sibling, or our report of it.

"""


class Table:
    """Collects what was observed."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, str]] = {}
        self.what: dict[str, str] = {}
        self.columns: list[str] = []

    def add(self, observation: Observation, *, column: str) -> None:
        """Note what one attack did in one arrangement."""
        name = observation.attack.name
        self.what[name] = observation.attack.what
        if column not in self.columns:
            self.columns.append(column)
        self.rows.setdefault(name, {})[column] = "; ".join(observation.harms) or "unharmed"

    def _columns(self) -> list[str]:
        return sorted(self.columns, key=lambda column: (column != "plain", column))

    def text(self) -> str:
        """Give it for a terminal: what was harmed, in a word."""
        columns = self._columns()
        lines = [f"{'attack':26}" + "".join(f"{column:16}" for column in columns)]
        for name in sorted(self.rows, key=_number):
            cells = [self.rows[name].get(column) for column in columns]
            words = ["" if c is None else c if c == "unharmed" else "HARMED" for c in cells]
            lines.append(f"{name:26}" + "".join(f"{word:16}" for word in words))
        return "\n".join(lines)

    def write(self) -> None:
        """Write the page of the documentation."""
        columns = self._columns()
        lines = [
            "| attack | what it does | " + " | ".join(columns) + " |",
            "| --- | --- |" + " --- |" * len(columns),
        ]
        for name in sorted(self.rows, key=_number):
            cells = [_cell(self.rows[name].get(column, "")) for column in columns]
            lines.append(f"| {name} | {_cell(self.what[name])} | " + " | ".join(cells) + " |")
        PAGE.write_text(_HEAD + "\n".join(lines) + "\n")


def _number(name: str) -> int:
    return int(name.partition("-")[0])


def _cell(text: str) -> str:
    short = text if len(text) <= 100 else text[:99] + "…"
    return short.replace("|", "\\|").replace("\n", " ")
