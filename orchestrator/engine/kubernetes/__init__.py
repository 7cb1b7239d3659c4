"""Workers in pods of a Kubernetes cluster, for the extra `kubernetes`.

The official client reads the configuration and the credentials; requests and answers are plain
dictionaries.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.engine.kubernetes.engine import KubernetesEngine

__all__ = ["KubernetesEngine"]


def __getattr__(name: str) -> Any:  # noqa: ANN401  # what a module's attribute is
    # Loaded on first use: the manifest is printed without the client.
    if name in __all__:
        from orchestrator.engine.kubernetes import engine

        return getattr(engine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
