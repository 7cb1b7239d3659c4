"""Wrap programs that need a helper in their container: see `in_container`."""

from importlib.resources import files


def starter() -> tuple[str, ...]:
    """Return the command that runs a program through `in_container`; the image must have Python."""
    text = files("orchestrator.agents").joinpath("in_container.py").read_text(encoding="utf-8")
    return ("python3", "-I", "-c", text)
