"""Tests that `orchestrator.engine` exports everything that an engine in another package needs."""

import subprocess
import sys

import pytest

import orchestrator.engine
from orchestrator.engine import ContainerEngine, Engine
from tests.support.interface import types_of


def test_every_promised_name_exists() -> None:
    missing = [n for n in orchestrator.engine.__all__ if not hasattr(orchestrator.engine, n)]

    assert missing == []


@pytest.mark.parametrize("protocol", [ContainerEngine, Engine])
def test_every_type_in_the_protocol_is_exported(protocol: type) -> None:
    assert types_of(protocol) - {*orchestrator.engine.__all__} == set()
    assert {"Container", "ContainerSpec", "OverlayMount", "Usage"} <= types_of(protocol)


def test_import_of_the_interface_loads_no_engine() -> None:
    script = "import sys, orchestrator.agents, orchestrator.engine; print('docker' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout == "False\n"
