"""Run the script that installs and starts what the orchestrator needs on a Debian-like machine."""

import os
import subprocess
import sys

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.sanitize import output_line
from orchestrator.engine.docker.address import chosen_address
from orchestrator.engine.images.recipes import build_files
from orchestrator.engine.interface.image_protocol import Progress

SCRIPT = "images/setup-engine.sh"
_ERROR = "error: "
_HINT = "hint: "


def prepare_machine(progress: Progress) -> None:
    """Install git, mmdebstrap and a Docker engine where they are missing, and start the engine.

    If the user chose another engine, by `DOCKER_HOST` or a context, none is installed or started.

    Raises:
        ConfigError: Something cannot be installed or started, this user may not use the engine, or
            the chosen context cannot be read.
    """
    part = "packages" if chosen_address(os.environ).source else "engine"
    # `sudo` asks for a password at the terminal, not on these streams.
    with subprocess.Popen(
        ["/bin/sh", str(build_files() / SCRIPT), part],
        env={**os.environ, "PYTHON": sys.executable},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as script:
        assert script.stderr is not None  # noqa: S101  # for mypy
        error, hint = None, None
        for line in map(output_line, script.stderr):
            if line.startswith(_ERROR):
                error = line.removeprefix(_ERROR)
            elif line.startswith(_HINT):
                hint = line.removeprefix(_HINT)
            elif line:
                progress(line)
    if script.returncode:
        raise ConfigError(
            error or "the machine cannot be prepared", key="machine.unprepared", hint=hint
        )
