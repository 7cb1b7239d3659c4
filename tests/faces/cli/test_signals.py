"""Tests of how a run is stopped by a signal."""

import signal
import threading
from typing import Any

import pytest

from orchestrator.faces.cli.signals import Interruption
from tests.support.live import PATIENCE

pytestmark = pytest.mark.fast


def test_signal_that_arrives_while_the_handlers_are_installed_stops_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install, stopped = signal.signal, threading.Event()

    def install_and_receive(number: int, handler: Any) -> Any:
        before = install(number, handler)
        if number == signal.SIGTERM and callable(handler):
            signal.raise_signal(number)
        return before

    monkeypatch.setattr(signal, "signal", install_and_receive)
    interruption = Interruption(lambda _: stopped.set())
    with interruption:
        assert stopped.wait(PATIENCE)
    assert interruption.exit_code == 128 + signal.SIGTERM
