import os
from pathlib import Path

import pytest

from orchestrator.engine.kubernetes.cluster import Cluster
from tests.cluster.lab import LAB, NAMESPACE, Lab


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
