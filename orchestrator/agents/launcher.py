"""How a program is started that needs somebody beside it in its container: see `inside`."""

from importlib.resources import files


def starter() -> tuple[str, ...]:
    """Return what goes before such a program's command line; the image needs Python for it."""
    text = files("orchestrator.agents").joinpath("in_container.py").read_text(encoding="utf-8")
    return ("python3", "-I", "-c", text)
