"""Check which programs an image has, so that no command is written whose program is missing."""

import secrets
from collections.abc import Iterable
from pathlib import Path

from orchestrator.cli.init.languages import ENSUREPIP
from orchestrator.engine.labels import MANAGED, REPOSITORY, ROLE
from orchestrator.engine.protocol import Engine
from orchestrator.engine.spec import ContainerSpec

BASE_PROGRAMS = frozenset({"git", "make", "python3"})
"""Programs of the base image, and thus of every image that is built on it."""
_SCRIPT = f"""\
for program; do
  case $program in
    {ENSUREPIP}) python3 -c "import ensurepip, venv" 2> /dev/null ;;
    ./*) false ;;
    *) command -v -- "$program" > /dev/null ;;
  esac && echo "$program"
done"""
_PATIENCE = 30.0
_LONGEST = 64 * 1024
_NOBODY = "65534:65534"


def programs_in(
    engine: Engine, image: str, wanted: Iterable[str], common_dir: Path
) -> frozenset[str] | None:
    """Return the programs of `wanted` that an image has; None if that cannot be determined.

    Args:
        engine: The container engine.
        image: The image.
        wanted: Names of programs.
        common_dir: The repository's git directory; labels the container, so that cleanup finds it.

    Raises:
        EngineError: The engine does not answer.
    """
    names = sorted(set(wanted))
    if engine.image_info(image) is None:
        return None
    container = engine.start(
        ContainerSpec(
            name=f"orchestrator-init-{secrets.token_hex(6)}",
            image=image,
            command=("sh", "-c", _SCRIPT, "sh", *names),
            user=_NOBODY,
            workdir="/",
            labels={MANAGED: "true", REPOSITORY: str(common_dir), ROLE: "probe"},
        )
    )
    printed = b""
    try:
        for chunk in container.logs():
            if chunk.stream == "stdout":
                printed += chunk.data[: _LONGEST - len(printed)]
        container.wait(_PATIENCE)
    except TimeoutError:
        return None
    finally:
        container.remove()
    return frozenset(names) & frozenset(printed.decode(errors="replace").split())
