"""The client of `tests.support.dying_client`, for places in pods of the lab."""

import os
from pathlib import Path

from orchestrator.engine.kubernetes.cluster import Cluster
from orchestrator.engine.kubernetes.pod_place import PodPlace
from tests.cluster.lab import LAB, NAMESPACE
from tests.support.dying_client import die

if __name__ == "__main__":
    settings = Path(os.environ[LAB]) / "kubeconfig-runner"
    cluster = Cluster(kubeconfig=settings, namespace=NAMESPACE)
    die(lambda spec: PodPlace(cluster, spec))
