import os
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from orchestrator.engine.kubernetes.cluster import Cluster
from tests.cluster.cut_api import CutApi
from tests.cluster.lab import LAB, NAMESPACE, Lab
from tests.cluster.runs import COMMAND, Start, begin, present


@pytest.fixture(scope="session")
def lab() -> Lab:
    directory = os.environ.get(LAB)
    if directory is None:
        pytest.fail("there is no cluster; run `make cluster`")
    return Lab(Path(directory))


@pytest.fixture
def cluster(lab: Lab) -> Cluster:
    return Cluster(kubeconfig=lab.directory / "kubeconfig", namespace=NAMESPACE)


@pytest.fixture
def runner(lab: Lab) -> Cluster:
    """Return the cluster for a user who has the rights of the role and no others."""
    return Cluster(kubeconfig=lab.directory / "kubeconfig-runner", namespace=NAMESPACE)


@pytest.fixture
def start(lab: Lab, repo: Path) -> Iterator[Start]:
    """Return a function that starts a run with one worker, which is stopped if the test fails."""
    made: list[Popen[str]] = []

    def start_run(*arguments: str, kubeconfig: Path | None = None) -> Popen[str]:
        settings = kubeconfig or lab.directory / "kubeconfig-runner"
        if "--workers" not in arguments:
            arguments = ("--workers", "1", *arguments)
        made.append(begin(repo, settings, *COMMAND, *arguments))
        return made[-1]

    yield start_run
    for process in made:
        if process.poll() is None:
            process.kill()  # it may have no API server any more
            process.communicate()
    for job in present(lab, repo, "jobs"):
        lab.kubectl("delete", "job", "-n", NAMESPACE, "--wait=false", job["metadata"]["name"])


@pytest.fixture
def cut(lab: Lab, tmp_path: Path) -> Iterator[CutApi]:
    """Return a proxy before the API server, for the user with the rights of the role."""
    made = CutApi(lab.directory / "kubeconfig-runner", tmp_path / "kubeconfig-cut")
    yield made
    made.close()
