"""Tests of every agent program in its own image, with a worker's restrictions."""

from collections.abc import Callable

import docker
import pytest

from orchestrator.engine.images.recipes import INSTALLERS
from orchestrator.engine.interface.labels import MANAGED

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

# Command, its expected output, and the maximum size of the image in MB.
AGENTS = {
    "architect": (["architect", "--version"], "architect, version 1.1.0", 400),
    "codex": (["codex", "--version"], "codex-cli 0.169.0", 600),
    "claude": (["claude", "--version"], "2.1.329 (Claude Code)", 610),
    "opencode": (["opencode", "--version"], "1.18.33", 420),
    "gemini": (["gemini", "--version"], "0.61.0", 520),
    "mini": (["mini", "--help"], "This is mini-swe-agent version 2.4.6.", 450),
    "aider": (["aider", "--version"], "aider 0.86.2", 900),
}

# Tasks see the system's `python3`, and not the agent's `node`.
SCRIPT = """"$@"
for program in git python3 node npm pip; do command -v $program || echo "no $program"; done
"""


def test_every_agent_is_tested() -> None:
    assert set(AGENTS) == set(INSTALLERS)


# Other images are only built by `make agents`, because their first build takes minutes.
FIRST = ("architect", "claude")


@pytest.mark.parametrize(
    "agent", [a if a in FIRST else pytest.param(a, marks=pytest.mark.agents) for a in AGENTS]
)
def test_program_starts_as_any_user_with_read_only_files(
    docker_client: docker.DockerClient, agent_image: Callable[[str], str], agent: str
) -> None:
    command, said, megabytes = AGENTS[agent]
    image = agent_image(agent)
    output: bytes = docker_client.containers.run(
        image,
        ["sh", "-ec", SCRIPT, "sh", *command],
        user="20001:20001",
        read_only=True,
        tmpfs={"/tmp": ""},
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        environment={"HOME": "/tmp/home"},
        network_mode="none",
        labels={MANAGED: "true"},
        remove=True,
    )
    lines = [line.strip() for line in output.decode().splitlines() if line.strip()]
    assert lines[0].startswith(said)
    assert lines[-5:] == ["/usr/bin/git", "/usr/bin/python3", "no node", "no npm", "no pip"]
    assert docker_client.images.get(image).attrs["Size"] < megabytes * 1_000_000
