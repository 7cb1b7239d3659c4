"""Tests that every agent program must pass whose key is in the run's credential broker."""

import subprocess

import pytest

from tests.system.agents.agent_suite import TaskSuite
from tests.system.agents.conftest import Orchestrator

BROKER = ("--keys", "broker", "--network", "none")


class BrokerSuite(TaskSuite):
    """The common tasks of a program, without a network and without a key in the worker."""

    # The broker measures what the program does not report.
    tells_cost = True

    @pytest.fixture(autouse=True)
    def broker(self, broker_image: str) -> str:
        """The image of the broker."""
        return broker_image

    def run(
        self, orchestrator: Orchestrator, base: str, *tasks: str, **options: str
    ) -> subprocess.CompletedProcess[str]:
        """Run one worker for each task, through the broker."""

        def through_the_broker(*arguments: str) -> subprocess.CompletedProcess[str]:
            return orchestrator(*arguments, *BROKER)

        return super().run(through_the_broker, base, *tasks, **options)
