"""Record the demo's run in a terminal, and write its last screen to `docs/demo/terminal.svg`.

Requires the same as `make demo`. Run it after changing the output of `orchestrator parallel`:
`.venv/bin/python docs/demo/record.py`.
"""

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

from demo import (
    COMMAND,
    HERE,
    environment,
    find_problems,
    git_lines,
    make_repository,
    model_server,
)
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

PICTURE = HERE / "terminal.svg"
COLUMNS = 112
SHOWN_PATH = "~/shop"
"""Path that the picture shows instead of the temporary directory of the repository."""
LAST_LINE = "review order: "
EXPECTED = "2 success, 1 timeout"
"""Part of the run's last lines; on a busy machine, more workers reach the deadline."""
LEFT_OUT = ("note: ", "the work is in ")
"""Beginnings of lines that are left out because they depend on the machine."""
LOG = "log --oneline --graph --branches --decorate --decorate-refs=refs/heads"
_CONTROL = re.compile(
    r"\x1b\[(?P<parameters>[?\d;]*)(?P<command>[A-Za-z])|(?P<plain>[\r\n]|[^\x1b\r\n]+)"
)
_FONT_FACE = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)


def main() -> int:
    """Record the run; return 1 if its result is not as expected."""
    with model_server() as url:
        repository = make_repository()
        code, recorded = run_in_terminal(repository, url)
    branches = "\n".join(git_lines(repository, *shlex.split(LOG)))
    problems = list(find_problems(repository, code))
    if EXPECTED not in recorded:
        problems.append(f"the run did not end with `{EXPECTED}`: is the machine too busy?")
    clean_up = [sys.executable, "-m", "orchestrator", "parallel-cleanup", "--purge"]
    subprocess.run(clean_up, cwd=repository, check=True, capture_output=True)
    shutil.rmtree(repository)
    if problems:
        print(recorded, *problems, sep="\n", file=sys.stderr)
        return 1
    shown = recorded.replace(str(repository), SHOWN_PATH)
    PICTURE.write_text(draw(screen(shown, branches)), encoding="utf-8")
    return 0


def run_in_terminal(repository: Path, url: str) -> tuple[int, str]:
    """Run the demo's command in a terminal; return its exit code and its output."""
    ours, theirs = pty.openpty()
    variables = {"COLUMNS": str(COLUMNS), "LINES": "40", "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *shlex.split(COMMAND)],
        cwd=repository, env={**environment(url), **variables},
        stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    pieces = []
    while piece := _read(ours):
        pieces.append(piece)
    os.close(ours)
    return process.wait(), b"".join(pieces).decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux reports a closed terminal as an error
        return b""


def last_screen(recorded: str) -> list[str]:
    """Return the lines of the screen after all cursor movements, with their colours."""
    lines = [""]
    row = 0
    is_new = False
    for match in _CONTROL.finditer(recorded):
        parameters, command = match["parameters"], match["command"]
        if command == "m":
            lines[row] += match[0]
        elif command == "A":
            row = max(0, row - int(parameters or 1))
        elif command == "K":
            lines[row] = ""
        elif match["plain"] == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif match["plain"] == "\r":
            is_new = True
            continue
        elif match["plain"]:
            lines[row] = (
                match["plain"] if is_new and lines[row].strip() else lines[row] + match["plain"]
            )
        is_new = is_new and match["plain"] is None
    return lines


def screen(recorded: str, branches: str) -> str:
    """Return the text of the picture: the command, its last lines, and the branches."""
    kept = [line for line in last_screen(recorded) if not line.startswith(LEFT_OUT)]
    end = next(number for number, line in enumerate(kept) if line.startswith(LAST_LINE))
    lines = [f"$ orchestrator {COMMAND}", *kept[: end + 1], "", f"$ git {LOG}", branches]
    return "\n".join(lines)


def draw(text: str) -> str:
    """Return a picture of a terminal with the text, as an SVG that loads no font."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text))
    picture = _FONT_FACE.sub("", CONSOLE_SVG_FORMAT).replace(
        "Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace"
    )
    return console.export_svg(title="orchestrator", code_format=picture, unique_id="terminal")


if __name__ == "__main__":
    sys.exit(main())
