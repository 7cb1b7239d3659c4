"""Settings of pods: where a cluster gets images from, and on which nodes workers run."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from orchestrator.config.settings.option import Group, Option
from orchestrator.config.settings.values import LONGEST, Model

_REGISTRY = r"(?:localhost|[a-z0-9-]+(?:\.[a-z0-9-]+)+|[a-z0-9.-]+:[0-9]{1,5})(?:/[a-z0-9._-]+)*"
_IMAGE = re.compile(rf"{_REGISTRY}(?::[\w][\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?", re.ASCII)
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_WORD = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL = re.compile(rf"({_NAME.pattern}/)?{_WORD}")


def check_registry(registry: str) -> str:
    """Check the address of a registry, and return it.

    Raises:
        ValueError: It cannot be one.
    """
    # protection: registry-has-host
    if len(registry) > 200 or not re.fullmatch(_REGISTRY, registry):
        raise ValueError(
            "a registry must be written as `HOST`, `HOST:PORT` or `HOST/PATH`, in lower case, such "
            "as `registry.example/team`"
        )
    return registry


def _check_image(image: str) -> str:
    if len(image) > 500 or not _IMAGE.fullmatch(image):
        raise ValueError(
            "an image must be written with its registry, such as "
            "`registry.example/team/base@sha256:…`"
        )
    return image


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a name must be one of the cluster: lower-case letters, digits, `-`, `.`")
    return name


def _check_key(key: str) -> str:
    if not _LABEL.fullmatch(key):
        raise ValueError("a label's name must be one of the cluster, such as `example.com/pool`")
    return key


def _check_value(value: str) -> str:
    if value and not re.fullmatch(_WORD, value):
        raise ValueError("a label's value must have at most 63 letters, digits, `-`, `_` and `.`")
    return value


_Name = Annotated[str, AfterValidator(_check_name)]
_Key = Annotated[str, AfterValidator(_check_key)]
_Value = Annotated[str, AfterValidator(_check_value)]


class Toleration(Model):
    """A taint of nodes on which workers may run nevertheless."""

    key: _Key
    """Name of the taint."""
    value: _Value | None = None
    """Value of the taint. Default: any value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Default: any effect."""

    def toleration(self) -> dict[str, str]:
        """Return the toleration as a cluster reads it."""
        operator = "Exists" if self.value is None else "Equal"
        return {"operator": operator, **self.model_dump(exclude_none=True)}


class PodSettings(Model):
    """Settings of pods, in the block `cluster:` of a file."""

    registry: Annotated[
        Annotated[str, AfterValidator(check_registry)] | None,
        Option(
            Group.ISOLATION,
            "REGISTRY",
            help="Registry from which a cluster gets the images, after `image push REGISTRY`.",
        ),
    ] = None
    """Registry from which a cluster gets the images that `orchestrator image push` pushed to it,
    such as `registry.example/team`. Pods name them by the digests that were recorded then.
    Default: the nodes have the images."""
    images: dict[str, Annotated[str, AfterValidator(_check_image)]] = Field(default={})
    """What the cluster calls images, by the name that they have here, such as
    `orchestrator/base:latest: registry.example/team/base@sha256:…`. They take precedence over those
    of `registry`."""
    image_pull_secrets: tuple[_Name, ...] = ()
    """Names of Secrets of the namespace with which nodes get images from a private registry."""
    node_selector: dict[_Key, _Value] = Field(default={})
    """Labels that nodes must have to run workers."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of nodes on which workers may run nevertheless."""
    priority_class: _Name | None = None
    """PriorityClass of workers' pods. Default: that of the cluster."""
    start_within: float = Field(default=900.0, ge=10, le=LONGEST)
    """Seconds within which a worker's pod must find room and start, or else the worker fails."""
