"""Workers in pods of a Kubernetes cluster, for the extra `kubernetes`.

The official client reads the configuration and the credentials; requests and answers are plain
dictionaries.
"""

from orchestrator.engine.kubernetes.engine import KubernetesEngine

__all__ = ["KubernetesEngine"]
