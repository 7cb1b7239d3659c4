"""Return the command that starts a program through the helper `in_container`."""

from importlib.resources import files


def starter() -> tuple[str, ...]:
    """Return the command that starts a program through `in_container`, with the image's Python."""
    text = files("orchestrator.agents").joinpath("in_container.py").read_text(encoding="utf-8")
    return ("python3", "-I", "-c", text)
