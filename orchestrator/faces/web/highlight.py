"""Find the comments, keywords and literals of source code, with pygments in a process of its own.

The code is a worker's, and lexers consist of regular expressions that some texts make very slow.
Therefore this module is also a program: it runs with limits, and prints only names of classes and
lengths, so that it cannot change the text that a page shows.
"""

import json
import subprocess
import sys
from collections.abc import Sequence

from orchestrator.repository.git.limits import Limits

_LIMITS = Limits(memory=256 * 1024**2, cpu=3, time=3.0)
_MOST_SPANS = 60_000
"""Maximum number of spans of all texts; what is behind them has no colours."""
Spans = Sequence[tuple[str, int]]
"""The parts of a line: name of a CSS class, empty for plain text, and number of characters."""


def highlight(sources: Sequence[tuple[str, str]]) -> list[list[Spans]]:
    """Return the spans of all lines of texts that are parts of source files.

    Args:
        sources: For each text: the name of its file, which selects the language, and the text.

    Returns:
        For each text: the spans of its lines. An empty list if finding them took too long.
    """
    command = _LIMITS.around([sys.executable, "-I", "-m", __name__])
    try:
        # protection: lexers-have-limit-of-time
        done = subprocess.run(
            command, input=json.dumps(sources).encode(), capture_output=True,
            timeout=_LIMITS.time, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    found: list[list[Spans]] = json.loads(done.stdout)
    return found


def _main() -> None:
    from pygments.lexers import find_lexer_class_for_filename
    from pygments.token import Comment, Keyword, Name, Number, String

    looks = {Comment: "c", Keyword: "k", String: "s", Number: "m", Name.Function: "t",
             Name.Class: "t", Name.Tag: "t", Name.Decorator: "t"}  # fmt: skip
    found, room = [], _MOST_SPANS
    for name, text in json.load(sys.stdin):
        kind = find_lexer_class_for_filename(name)
        lines: list[list[tuple[str, int]]] = [[]]
        tokens = kind(stripnl=False, ensurenl=False).get_tokens(text) if kind else ()
        for token, value in tokens:
            look = next(
                (look for prefix, look in looks.items() if token[: len(prefix)] == prefix), ""
            )
            for number, part in enumerate(value.split("\n")):
                if number:
                    lines.append([])
                if part:
                    lines[-1].append((look, len(part)))
                    room -= 1
            # protection: number-of-coloured-spans-limited
            if room <= 0:
                break
        found.append(lines)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    _main()
