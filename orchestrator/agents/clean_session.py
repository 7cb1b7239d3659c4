"""Remove settings from the files of a session, INSIDE a container, and start the agent program.

Its source text is passed to the container's Python, so it imports only the standard library. Its
arguments are the name of the program, which selects the rules, and a command line.

The files were written by an earlier container of the same worker. What they contain besides the
conversation would change the directory, the tools, the system prompt or the reported cost.
"""

import json
import os
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

SESSION = "/session"
WORKSPACE = "/workspace"
OF_CLAUDE = ("cost-state", "worktree-state", "agent-setting")
OF_CODEX = ("base_instructions", "dynamic_tools")


def claude(line: dict[str, Any]) -> bool:
    """Return whether a line of a session is kept. Without `cost-state`, costs are not added up."""
    # protection: settings-are-removed-from-sessions-of-claude
    return line.get("type") not in OF_CLAUDE


def codex(line: dict[str, Any]) -> bool:
    """Return whether a line of a session is kept, after settings were removed from it."""
    payload = line.get("payload")
    if not isinstance(payload, dict):
        return True
    if line.get("type") == "session_meta":
        # protection: settings-are-removed-from-sessions-of-codex
        for name in OF_CODEX:
            payload.pop(name, None)
        payload["cwd"] = WORKSPACE
    # protection: counts-are-removed-from-sessions-of-codex
    return payload.get("type") != "token_count"


def clean_lines(folder: str, keeps: Callable[[dict[str, Any]], bool]) -> None:
    """Write each file of JSON lines in a directory again, without lines that are not kept."""
    for place, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".jsonl"):
                clean_file(os.path.join(place, name), keeps)


def clean_file(path: str, keeps: Callable[[dict[str, Any]], bool]) -> None:
    """Write a file of JSON lines again, without lines that are not kept or are not objects."""
    half = f"{path}.half"
    with open(path, "rb") as file, open(half, "wb") as clean:
        for text in file:
            try:
                line = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict) and keeps(line):
                clean.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    os.replace(half, path)


def clean_database(path: str) -> None:
    """Reset directory and permissions of all sessions in opencode's database."""
    with sqlite3.connect(path) as database:
        # protection: settings-are-removed-from-sessions-of-opencode
        database.execute("UPDATE session SET directory = ?, permission = NULL", (WORKSPACE,))
    database.close()


def clean(program: str, folder: str) -> None:
    """Clean the files of a program's session."""
    if program == "claude":
        clean_lines(folder, claude)
    elif program == "codex":
        clean_lines(folder, codex)
    elif program == "opencode":
        clean_database(os.path.join(folder, "opencode.db"))


if __name__ == "__main__":
    try:
        clean(sys.argv[1], SESSION)
    except (OSError, ValueError, sqlite3.Error) as error:
        sys.stderr.write(f"the session cannot be continued: {error}\n")
        sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])
