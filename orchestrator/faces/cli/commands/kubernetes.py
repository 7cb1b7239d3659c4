"""`orchestrator kubernetes`: prepare a cluster for workers."""

import re
from typing import Annotated

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.engine.kubernetes.manifest import PodSecurity
from orchestrator.engine.kubernetes.manifest import manifest as made_manifest
from orchestrator.faces.cli.output.messages import show

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Prepare a cluster for workers.")
_NAMESPACE = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@app.callback()
def _group() -> None:
    """Keep the name of the only command."""


@app.command()
def manifest(
    namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Namespace for workers alone.")
    ] = "agents",
    user: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="User of the cluster who starts runs; repeatable."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Group of users who start runs; repeatable."),
    ] = None,
    pods: Annotated[
        int, typer.Option(metavar="N", min=3, help="How many pods the namespace can have.")
    ] = 100,
    deny: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CIDR", help="Public network closed to workers, such as of nodes; repeatable."
        ),
    ] = None,
    pod_security: Annotated[
        PodSecurity,
        typer.Option(help="With `baseline`, services may start as root, as most databases do."),
    ] = PodSecurity.RESTRICTED,
) -> None:
    """Print the objects that an administrator applies once, for `kubectl apply -f -`."""
    if not _NAMESPACE.fullmatch(namespace) or namespace == "default":
        raise ConfigError(
            f"`{namespace}` cannot be the namespace of workers",
            key="cluster.namespace-name",
            hint="use a name of lower-case letters, digits and `-`, other than `default`",
        )
    text = made_manifest(
        namespace, users=user or (), groups=group or (), pods=pods, deny=deny or (),
        pod_security=pod_security,
    )  # fmt: skip
    show(text.rstrip())
