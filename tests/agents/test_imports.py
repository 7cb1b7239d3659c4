"""Tests that adapters do not import Docker or the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import agents

_LOADED = """
import json, sys
from importlib import import_module
import_module(sys.argv[1])
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


_TOP = Path(agents.__file__).parent
MODULES = sorted(path.stem for path in _TOP.glob("[!_]*.py"))
MODULES += sorted(f"programs.{path.stem}" for path in _TOP.glob("programs/[!_]*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_an_adapter_loads_neither_docker_nor_the_command_line(module: str) -> None:
    command = [sys.executable, "-c", _LOADED, f"orchestrator.agents.{module}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    loaded = set(json.loads(done.stdout))
    assert "orchestrator" in loaded
    assert not loaded & {"docker", "requests", "urllib3", "typer", "click", "rich", "humanize"}
