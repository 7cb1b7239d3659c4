"""Inspect, pull, import, build and tag images, with the Docker SDK."""

import errno
import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import docker
import docker.errors
from docker.api.build import process_dockerfile
from docker.utils import parse_repository_tag
from docker.utils.build import create_archive, exclude_paths

from orchestrator.base.errors import EngineUnavailableError, ImageBuildError, OrchestratorError
from orchestrator.base.files.safe_open import read_limited
from orchestrator.base.text.sanitize import one_line, output_line, without_sequences
from orchestrator.base.text.split_lines import split_lines
from orchestrator.engine.docker.buildkit import build as build_with_buildkit
from orchestrator.engine.docker.buildkit import feature, has_buildkit
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.docker.image_files import image_files
from orchestrator.engine.docker.intermediate_images import Steps, remove_unnamed
from orchestrator.engine.interface.image_protocol import ImageBuild, ImageInfo, Progress

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DENIED = ("denied", "unauthorized", "authentication required", "no basic auth", "forbidden")
"""Words with which registries refuse a user."""
_NAMELESS = "<none>:<none>"
_LAST_LINES = 15
_CHUNK = 2 * 1024**2
"""Number of bytes of an archive of images that are read at once."""
_LARGEST_IGNORE = 1024**2
"""Maximum size in bytes of a `.dockerignore` file."""
# The daemon colours what a build step writes to stderr.


_TOO_OLD = (
    "the BuildKit of this engine does not know it yet: use Docker 23 or later, or begin the file "
    "with `# syntax=docker/dockerfile:1`"
)
_HINTS = {
    "unknown instruction": _TOO_OLD,
    "unknown flag": _TOO_OLD,
    "session": "builds get no secrets and no keys of ssh: remove `--mount=type=secret` and "
    "`--mount=type=ssh`",
}
"""Hints by what BuildKit reports."""


class DockerImages:
    """Implements `orchestrator.engine.interface.image_protocol.ImageEngine`."""

    def __init__(self, client: docker.APIClient) -> None:
        self._client = client

    def image_id(self, image: str) -> str | None:
        """Return the id of an image; None if the daemon does not have the image."""
        info = self.image_info(image)
        return info.id if info else None

    def image_info(self, image: str) -> ImageInfo | None:
        """Return a description of an image; None if the daemon does not have the image."""
        with translated(f"inspect the image `{image}`"):
            try:
                # docker-py decorates this method, which hides its types.
                found = self._client.inspect_image(image)  # type: ignore[no-untyped-call]
            except docker.errors.NotFound:
                return None
        return ImageInfo(
            id=found["Id"],
            size=found["Size"],
            created=found["Created"],
            labels=(found["Config"] or {}).get("Labels") or {},
        )

    def labelled_images(self, label: str) -> Mapping[str, ImageInfo]:
        """Return the images with a label, by image name; an image with two names occurs twice."""
        with translated("list the images"):
            found = self._client.images(filters={"label": label})
        images = ((name, image) for image in found for name in image["RepoTags"] or ())
        return {name: _listed(image) for name, image in images if name != _NAMELESS}

    def pull(self, image: str, *, progress: Progress) -> None:
        """Pull an image from its registry."""
        repository, tag = _split(image)
        with _building(f"pull `{image}`"):
            stream = self._client.pull(repository, tag=tag, stream=True, decode=True)
            _follow(stream, action=f"pull `{image}`", progress=progress)

    def import_image(self, tarball: Path, *, tag: str, labels: Mapping[str, str]) -> None:
        """Create an image with a single layer from an archive of a root file system."""
        repository, name = _split(tag)
        # JSON quoting is valid in a Dockerfile except for `$`, which starts a variable there.
        changes = [f"LABEL {json.dumps(k)}={json.dumps(v)}" for k, v in labels.items()]
        with _building(f"import `{tag}`"), self._in_the_place_of(tag, labels):
            answer = self._client.import_image_from_file(
                str(tarball), repository=repository, tag=name, changes=changes
            )
            # The daemon reports a refusal in the middle with status 200 and an error line in the
            # answer.
            lines = (json.loads(line) for line in split_lines(answer) if line.strip())
            _follow(lines, action=f"import `{tag}`", progress=lambda _: None)

    def build(self, image: ImageBuild, *, progress: Progress) -> None:
        """Build an image from a folder; remove intermediate images and the replaced image."""
        steps, tag = Steps(), image.tag
        with (
            _building(f"build `{tag}`"),
            self._in_the_place_of(tag, image.labels),
            _archive(image) as (archive, name, needed),
        ):
            if needed is not None and has_buildkit(self._client):
                self._build_with_buildkit(image, archive, name, progress)
                return
            stream = self._client.build(
                fileobj=archive,
                custom_context=True,
                encoding=None if needed is None else "gzip",
                dockerfile=name,
                tag=tag,
                buildargs=dict(image.args),
                labels=dict(image.labels),
                nocache=not image.use_cache,
                target=image.target,
                # A build may need the proxy of the user's Docker configuration to reach packages;
                # the daemon keeps it out of the image and of its history.
                use_config_proxy=True,
                # Remove the containers of build steps, including that of a failed step.
                rm=True,
                forcerm=True,
                decode=True,
            )
            try:
                _follow(steps.following(stream), action=f"build `{tag}`", progress=progress)
            except ImageBuildError as error:
                hint = needed and f"`{needed}` needs BuildKit, which this engine does not have"
                raise ImageBuildError(error.message, key="build.failed", hint=hint) from error
            finally:
                # protection: unnamed-build-stages-removed
                steps.remove(self._client)

    def _build_with_buildkit(
        self, image: ImageBuild, archive: IO[bytes], name: str, progress: Progress
    ) -> None:
        client: Any = self._client
        proxies = client._proxy_configs.get_environment() if client._proxy_configs else {}
        options = {
            "dockerfile": name,
            "t": image.tag,
            "buildargs": json.dumps({**proxies, **image.args}),
            "labels": json.dumps(dict(image.labels)),
            "nocache": None if image.use_cache else "1",
            "target": image.target,
        }
        stream = build_with_buildkit(self._client, archive, options)
        try:
            _follow(stream, action=f"build `{image.tag}`", progress=progress)
        except ImageBuildError as error:
            hint = next(
                (hint for text, hint in _HINTS.items() if text in error.message.lower()), None
            )
            raise ImageBuildError(error.message, key="build.failed", hint=hint) from error

    @contextmanager
    def _in_the_place_of(self, tag: str, labels: Mapping[str, str]) -> Iterator[None]:
        """Remove the image that `tag` named before the `with` block, if it has such labels."""
        before = self.image_info(tag) if labels else None
        yield
        if before is not None and labels.keys() <= before.labels.keys():
            # protection: replaced-images-removed
            remove_unnamed(self._client, before.id, parents=True)

    def tag(self, image: str, *, tag: str) -> None:
        """Add a name to an image."""
        repository, name = _split(tag)
        with translated(f"tag `{image}`"):
            self._client.tag(image, repository, tag=name, force=True)

    def push(self, image: str, *, name: str, progress: Progress) -> str:
        """Push an image to a registry, and return the digest by which the registry knows it."""
        repository, tag = _split(name)
        action, digest = f"push `{image}` to `{name}`", ""
        self.tag(image, tag=name)
        try:
            with _building(action):
                for event in self._client.push(repository, tag=tag, stream=True, decode=True):
                    if "error" in event:
                        raise _push_error(action, str(event["error"]), name)
                    digest = str((event.get("aux") or {}).get("Digest", digest))
                    for line in _lines(event):
                        progress(line)
        finally:
            self.remove_image(name)
        if not _DIGEST.fullmatch(digest):
            raise ImageBuildError(f"cannot {action}: the engine told no digest", key="image.push")
        return digest

    def files(
        self, image: str, top: str, wanted: Callable[[str], bool]
    ) -> Iterator[tuple[str, bytes]]:
        """Yield the path and content of wanted regular files at or below a path of an image."""
        return image_files(self._client, image, top, wanted)

    def save(self, images: Sequence[str]) -> Iterator[bytes]:
        """Return an archive of images and their names, in the format of `docker save`."""
        client: Any = self._client
        with translated("save images"):
            # The SDK's own method takes one image, and layers that images share would be repeated.
            url, names = client._url("/images/get"), {"names": [*images]}
            answer = client._get(url, params=names, stream=True)
            yield from client._stream_raw_result(answer, chunk_size=_CHUNK, decode=False)

    def load(self, archive: IO[bytes]) -> None:
        """Add the images of an archive, which get the names that they have there."""
        with _building("load the images"):
            answer = self._client.load_image(archive, quiet=True)  # type: ignore[no-untyped-call]
            _follow(answer, action="load the images", progress=lambda _: None)

    def remove_image(self, image: str) -> None:
        """Remove a name of an image, and the image if it has no other name."""
        with translated(f"remove the image `{image}`"), suppress(docker.errors.ImageNotFound):
            self._client.remove_image(image)


@contextmanager
def _archive(image: ImageBuild) -> Iterator[tuple[IO[bytes], str, str | None]]:
    """Pack the build context as the SDK does; yield the archive and the Dockerfile's name in it.

    The third value is what in the Dockerfile only BuildKit knows; the archive is then compressed.

    Raises:
        ImageBuildError: A file cannot be read, or the disk is full.
    """
    with TemporaryFile() as archive:
        try:
            name, needed = _pack(image, archive)
        except OSError as error:
            raise ImageBuildError(
                f"cannot pack the build context of `{image.tag}`: {one_line(str(error))}",
                key="build.context",
            ) from error
        yield archive, name, needed


def _pack(image: ImageBuild, archive: IO[bytes]) -> tuple[str, str | None]:
    context, dockerfile = image.context, image.dockerfile
    root = str(context.resolve())
    lines = _ignore_lines(context / ".dockerignore")
    ignored = [line for line in map(str.strip, lines) if line and not line.startswith("#")]
    name, text = process_dockerfile(dockerfile, root)
    inside = name or dockerfile
    paths = sorted(exclude_paths(root, ignored, dockerfile=inside))
    files = [path for path in paths if not _is_below(path.replace(os.sep, "/"), image.left_out)]
    # A Dockerfile from outside the context is added to the archive, but excluded from `COPY`.
    beside: list[tuple[str, str]] = []
    if text is not None:
        beside = [(".dockerignore", "\n".join([*ignored, inside])), (inside, text)]
    needed = feature(text if text is not None else _text_of(context / inside))
    create_archive(root, files=files, fileobj=archive, gzip=bool(needed), extra_files=beside)
    return inside, needed


def _text_of(dockerfile: Path) -> str:
    """Return the text of a Dockerfile; the engine itself reports one that is unreadable."""
    try:
        return read_limited(dockerfile, most=_LARGEST_IGNORE, follow=True).decode(errors="replace")
    except OSError:
        return ""


def _ignore_lines(listed: Path) -> list[str]:
    """Return the lines of a context's `.dockerignore`, without following a link.

    A build can see these lines: a link could expose a file of the host.

    Raises:
        ImageBuildError: The file is unreadable, a link, not a regular file, or too large.
    """
    try:
        # protection: linked-dockerignore-refused
        data = read_limited(listed, most=_LARGEST_IGNORE)
    except FileNotFoundError:
        return []
    except OSError as error:
        why = "the file is a link" if error.errno == errno.ELOOP else error.strerror
        raise ImageBuildError(
            f"{listed} cannot be read: {why}", key="build.file-unreadable"
        ) from error
    return split_lines(data.decode(errors="surrogateescape"))


def _is_below(path: str, folders: frozenset[str]) -> bool:
    ends = (place for place, letter in enumerate(f"{path}/") if letter == "/")
    return any(path[:end] in folders for end in ends)


def _listed(image: Mapping[str, Any]) -> ImageInfo:
    """Convert an entry of the daemon's image list to an ImageInfo."""
    created = datetime.fromtimestamp(image["Created"], UTC).isoformat()
    labels = image.get("Labels") or {}
    return ImageInfo(id=image["Id"], size=image["Size"], created=created, labels=labels)


def _split(image: str) -> tuple[str, str | None]:
    repository, tag = parse_repository_tag(image)
    # Without a tag, docker-py would pull every tag of the repository.
    return repository, tag or "latest"


@contextmanager
def _building(action: str) -> Iterator[None]:
    """Convert errors of the daemon in the `with` block into ImageBuildError."""
    try:
        with translated(action):
            yield
    except (EngineUnavailableError, ImageBuildError):
        raise
    except OrchestratorError as error:
        raise ImageBuildError(error.message, key="build.failed") from error


def _follow(stream: Iterable[dict[str, Any]], *, action: str, progress: Progress) -> None:
    """Read the progress of a build or pull until the daemon has finished.

    Raises:
        ImageBuildError: The stream contains an error.
    """
    last: deque[str] = deque(maxlen=_LAST_LINES)
    for event in stream:
        if "error" in event:
            raise ImageBuildError(_failure(action, str(event["error"]), last), key="build.failed")
        for line in _lines(event):
            last.append(line)
            progress(line)


def _lines(event: Mapping[str, Any]) -> list[str]:
    # Progress bars arrive several times a second for each layer. The events at a layer's beginning
    # and end have no bar and are enough.
    if event.get("progressDetail"):
        return []
    text = without_sequences(str(event.get("stream") or event.get("status") or ""))
    prefix = f"{event['id']}: " if event.get("id") else ""
    return [one_line(prefix + line) for line in split_lines(text) if line.strip()]


def _push_error(action: str, error: str, name: str) -> ImageBuildError:
    host = name.partition("/")[0]
    hint = f"check that `{host}` is a registry which the container engine can reach"
    if any(word in error.lower() for word in _DENIED):
        hint = f"`docker login {host}`, as a user who may push there"
    message = f"cannot {action}: {output_line(error, limit=500)}"
    return ImageBuildError(message, key="image.push", hint=hint)


def _failure(action: str, error: str, last: Iterable[str]) -> str:
    head = f"cannot {action}: {output_line(error, limit=500)}"
    return "\n".join([head, *(f"  {line}" for line in last)])
