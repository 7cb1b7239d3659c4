"""The attacks of the corpus: shell scripts with the expected outcome in lines that begin `#:`."""

import re
from dataclasses import dataclass, field
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
SCRIPTS = Path(__file__).parent / "scripts"
NONE = r"(?!)"


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A hostile task."""

    name: str
    what: str
    script: str
    repository: str = ""
    """Kind of repository that the attack needs, as in `make_target`."""
    options: tuple[str, ...] = ()
    """Further options of the run."""
    group: str = ""
    """Attacks with the same group share a run."""
    honest: bool = True
    """Whether the attack commits honest work first, which must be on the branch afterwards."""
    status: str = "success"
    reason: str | None = None
    sent: tuple[str, str] | None = None
    """Status and reason if the files are sent to the engine, where these differ."""
    refused: str | None = None
    """Text of the message if the harvest must be refused."""
    note: str | None = None
    """Text of the message about files that must be left out."""
    within: float | None = None
    """Seconds within which the worker must be dead."""
    most: dict[str, int] = field(default_factory=dict)
    """Maximum of each number that the attack reports."""
    never: str = NONE
    always: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """The number that the attack's name begins with."""
        return int(self.name.partition("-")[0])

    def task(self, variables: dict[str, str]) -> str:
        """Return the shell script of the task, with the variables of the harness."""
        told = {**variables, "HONEST": "yes" if self.honest else "no"}
        head = "".join(f"{name}='{value}'\n" for name, value in told.items())
        return f"{head}{(SCRIPTS / 'prelude.sh').read_text()}\n{self.script}\ntrue\n"

    def surroundings(self) -> tuple[str, tuple[str, ...], str]:
        """Return what attacks that share a run must have in common."""
        return self.repository, self.options, self.group

    def broken_rules(self, output: str) -> list[str]:
        """Return the rules of the attack that the reports in its output break."""
        reports = re.findall(r"^REPORT (.*)$", output, re.MULTILINE)
        text = "\n".join(reports)
        broken = [f"it reports `{r}`" for r in reports if re.search(self.never, r)]
        broken += [f"it does not report `{line}`" for line in self.always if line not in text]
        for key, most in self.most.items():
            numbers = [int(n) for n in re.findall(rf"^{key}=(\d+)$", text, re.MULTILINE)]
            if not numbers:
                broken.append(f"it reports no `{key}`")
            elif max(numbers) > most:
                broken.append(f"{key}: {max(numbers)}, more than {most}")
        return broken


def load(name: str) -> Attack:
    """Read the attack with a name."""
    script = (CORPUS / f"{name}.sh").read_text()
    said: dict[str, list[str]] = {}
    for key, value in re.findall(r"^#: (\w+) ?(.*)$", script, re.MULTILINE):
        said.setdefault(key, []).append(value)
    status, _, reason = said.get("ends", ["success"])[0].partition(" ")
    refused = said.get("refused", [None])[0]
    sent_status, _, sent_reason = said.get("sent", [""])[0].partition(" ")
    if refused is not None and "ends" not in said:
        status, reason = "partial", "harvest_refused"
    return Attack(
        name=name,
        what=script.splitlines()[0].removeprefix("# "),
        script=script,
        repository=said.get("repository", [""])[0],
        options=tuple(said.get("options", [""])[0].split()),
        group=said.get("group", [""])[0],
        honest=said.get("honest") != ["no"],
        status=status,
        reason=reason or None,
        sent=(sent_status, sent_reason) if sent_status else None,
        refused=refused,
        note=said.get("note", [None])[0],
        within=float(said["within"][0]) if "within" in said else None,
        most={key: int(n) for key, n in (value.split() for value in said.get("most", []))},
        never=said.get("never", [NONE])[0],
        always=tuple(said.get("always", [])),
    )


def every() -> list[Attack]:
    """Read all attacks, sorted by number."""
    found = [load(path.stem) for path in CORPUS.glob("*.sh")]
    return sorted(found, key=lambda attack: attack.number)


def grouped(attacks: list[Attack], size: int) -> list[tuple[Attack, ...]]:
    """Group attacks that can share a run, at most `size` in a group."""
    alike: dict[tuple[str, tuple[str, ...], str], list[Attack]] = {}
    for attack in attacks:
        alike.setdefault(attack.surroundings(), []).append(attack)
    return [
        tuple(found[at : at + size])
        for found in alike.values()
        for at in range(0, len(found), size)
    ]
