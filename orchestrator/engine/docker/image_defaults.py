"""Settings that an image gives to its containers, and how a specification overrides them.

The daemon adds an image's labels and volumes to each container, without asking.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from posixpath import normpath
from typing import Any

import docker

from orchestrator.base.errors import EngineError
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.interface.spec import ContainerSpec, TmpfsMount
from orchestrator.engine.places.place import Start
from orchestrator.engine.places.porter_calls import repeatable

_OURS = "orchestrator."
"""Beginning of the orchestrator's labels."""
_VOLUME = 1024**3
"""Size limit in bytes of each volume that an image declares; such a volume is kept in memory."""


_KEPT = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_SSL_", "GIT_SSH", "GIT_TERMINAL_PROMPT")
"""Beginnings of names of git's variables that do not say where its files are."""
_SCRATCH = frozenset({"TMPDIR", "TMP", "TEMP"})


@repeatable
def image_config(client: docker.APIClient, image: str) -> Mapping[str, Any]:
    """Return the settings that an image gives to its containers.

    Raises:
        ImageNotFoundError: The daemon lacks the image.
    """
    with translated("inspect the image"):
        found = client.inspect_image(image)  # type: ignore[no-untyped-call]
    config: Mapping[str, Any] = found.get("Config") or {}
    return config


def overridden(
    spec: ContainerSpec, config: Mapping[str, Any], *, volumes: Collection[str] = ()
) -> ContainerSpec:
    """Return a specification that overrides what the image must not decide.

    The image's volumes are in memory: on disk, their size has no limit. Labels of the image that
    look like the orchestrator's are empty: they could name containers and ports of others.

    Args:
        spec: The specification.
        config: The image's settings.
        volumes: Paths of volumes that are mounted in addition to the mounts of the specification.

    Raises:
        EngineError: A volume would hide files of the worker, or the container has no command.
    """
    if not spec.command and not (config.get("Entrypoint") or config.get("Cmd")):
        raise EngineError(
            f"the image `{spec.image}` has no command to start",
            key="image.no-command",
            hint="set a command, or use an image that has one",
        )
    mounted = {normpath(target) for target in (*(mount.target for mount in spec.mounts), *volumes)}
    files = [mount.target for mount in spec.mounts if not isinstance(mount, TmpfsMount)]
    files = [f"{target}/" for target in (*files, *volumes)]
    declared = {normpath(path) for path in config.get("Volumes") or {}} - mounted
    for path in sorted(declared):
        # protection: no-volume-of-image-hides-files-of-worker
        if path.startswith(tuple(files)):
            raise EngineError(
                f"the image `{spec.image}` declares the volume {path}, which would hide files of "
                "the worker",
                key="image.volume",
                hint="use an image without this volume",
            )
    in_memory = (TmpfsMount(target=path, size=_VOLUME) for path in sorted(declared))
    ours = dict.fromkeys((key for key in config.get("Labels") or {} if key.startswith(_OURS)), "")
    # protection: images-volumes-are-in-memory
    # protection: labels-of-image-name-no-containers-of-others
    return replace(spec, mounts=(*spec.mounts, *in_memory), labels={**ours, **spec.labels})


def withheld(config: Mapping[str, Any]) -> dict[str, None]:
    """Return the variables of an image that its containers do not get, unless they are set anew.

    With git's own, such as `GIT_DIR`, neither the worker's git nor the programs of the harvest
    would find the worker's repository. Directories for temporary files need not exist, or could
    not be written to.
    """
    names = [str(entry).partition("=")[0] for entry in config.get("Env") or ()]
    return {
        name: None
        for name in names
        if name in _SCRATCH or (name.startswith("GIT_") and not name.startswith(_KEPT))
    }


def own_start(client: docker.APIClient, spec: ContainerSpec, start: Start) -> Start:
    """Return a start whose command is an image's own program, with the start's arguments.

    Raises:
        EngineError: The image has no program.
    """
    config = image_config(client, spec.image)
    program = (*(config.get("Entrypoint") or ()), *(start.command or config.get("Cmd") or ()))
    if not program:
        raise EngineError(
            f"the image `{spec.image}` has no command to start", key="image.no-command"
        )
    return replace(start, command=program)
