"""Begin and continue the sessions of agent programs."""

from importlib.resources import files
from typing import Final

from orchestrator.agents.base import AgentOutput, Session
from orchestrator.agents.output.search import json_lines

UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""Regular expression of an id that is a UUID."""


def continuing(program: str, session: Session | None, command: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command line that cleans the files of a continued session before it runs `command`.

    A worker may have written anything to these files. They are read in the new container only.
    """
    # protection: session-is-cleaned-before-it-is-continued
    if session is None or not session.continued:
        return command
    text = files("orchestrator.agents").joinpath("clean_session.py").read_text(encoding="utf-8")
    return ("python3", "-I", "-c", text, program, *command)


def first_text(output: AgentOutput, key: str, *, event: str | None = None) -> str | None:
    """Return the text at a key of the first JSON line of stdout that has the key.

    Args:
        output: The program's output.
        key: The key.
        event: The `type` that this line must have; None: any type.
    """
    found = (line for line in json_lines(output.stdout, f'"{key}"'.encode()) if key in line)
    first = next(found, {})
    text = first.get(key) if event in (None, first.get("type")) else None
    return text if isinstance(text, str) else None
