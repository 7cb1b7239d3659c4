"""Add man pages and completion scripts to the wheel's data files."""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMPLETIONS = {
    "bash": "share/bash-completion/completions/orchestrator",
    "zsh": "share/zsh/site-functions/_orchestrator",
    "fish": "share/fish/vendor_completions.d/orchestrator.fish",
}


class DataFiles(BuildHookInterface):
    """Writes the files into a temporary directory for the time of the build."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files, unless the package is installed for development."""
        self._scratch = Path(tempfile.mkdtemp(prefix="orchestrator-data-"))
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from orchestrator.faces.cli.command_table import read_commands
        from orchestrator.faces.cli.completion import script
        from orchestrator.faces.cli.man_pages import man_pages

        commands = read_commands()
        moment = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()))
        pages = man_pages(
            commands, version=self.metadata.version, date=time.strftime("%Y-%m-%d", moment)
        )
        points = self.metadata.core.entry_points["orchestrator.agents"]
        files = {f"share/man/man1/{name}": text for name, text in pages.items()}
        files |= {
            place: script(shell, commands, sorted(points)) for shell, place in _COMPLETIONS.items()
        }
        for number, (place, text) in enumerate(files.items()):
            file = self._scratch / str(number)
            file.write_text(text, encoding="utf-8")
            build_data["shared_data"][str(file)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary directory."""
        del version, build_data, artifact_path
        shutil.rmtree(self._scratch)
