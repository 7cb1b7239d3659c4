"""Images, through the Docker SDK."""

import errno
import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import docker
import docker.errors
from docker.api.build import process_dockerfile
from docker.utils import parse_repository_tag
from docker.utils.build import create_archive, exclude_paths

from orchestrator.engine.docker.errors import translated
from orchestrator.engine.docker.steps import Steps, remove_unnamed
from orchestrator.engine.image_protocol import ImageInfo, Progress
from orchestrator.errors import EngineUnavailableError, ImageBuildError, OrchestratorError
from orchestrator.files.safe_open import open_regular
from orchestrator.text.sanitize import one_line

_NAMELESS = "<none>:<none>"
_LAST_LINES = 15
_LARGEST_IGNORE = 1024**2
"""Bytes of a `.dockerignore`."""
# The daemon paints what a step writes to stderr.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class DockerImages:
    """See `orchestrator.engine.image_protocol.ImageEngine`."""

    def __init__(self, client: docker.APIClient) -> None:
        self._client = client

    def image_id(self, image: str) -> str | None:
        """Return the id of an image the daemon has, or None."""
        info = self.image_info(image)
        return info.id if info else None

    def image_info(self, image: str) -> ImageInfo | None:
        """Describe an image the daemon has, or None."""
        with translated(f"inspect the image `{image}`"):
            try:
                # Decorated in docker-py, which hides its types.
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
        """Return the images that have a label, by each of their names."""
        with translated("list the images"):
            found = self._client.images(filters={"label": label})
        images = ((name, one) for one in found for name in one["RepoTags"] or ())
        return {name: _listed(one) for name, one in images if name != _NAMELESS}

    def pull(self, image: str, *, progress: Progress) -> None:
        """Fetch an image from its registry."""
        repository, tag = _split(image)
        with _building(f"pull `{image}`"):
            stream = self._client.pull(repository, tag=tag, stream=True, decode=True)
            _follow(stream, action=f"pull `{image}`", progress=progress)

    def import_image(self, tarball: Path, *, tag: str, labels: Mapping[str, str]) -> None:
        """Make an image of one layer out of a root file system."""
        repository, name = _split(tag)
        # JSON's quoting is the Dockerfile's, but for `$`, which is a variable there.
        changes = [f"LABEL {json.dumps(k)}={json.dumps(v)}" for k, v in labels.items()]
        with _building(f"import `{tag}`"), self._in_the_place_of(tag, labels):
            answer = self._client.import_image_from_file(
                str(tarball), repository=repository, tag=name, changes=changes
            )
            # A refusal midway comes with status 200, as a line of the answer.
            lines = (json.loads(line) for line in answer.splitlines() if line.strip())
            _follow(lines, action=f"import `{tag}`", progress=lambda _: None)

    def build(
        self,
        context: Path,
        *,
        dockerfile: str,
        tag: str,
        args: Mapping[str, str],
        labels: Mapping[str, str],
        progress: Progress,
        use_cache: bool = True,
        target: str | None = None,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        """Build an image from a folder, but for some of its files; no unnamed image is left."""
        steps = Steps()
        with (
            _building(f"build `{tag}`"),
            self._in_the_place_of(tag, labels),
            _archive(context, dockerfile, left_out) as (archive, name),
        ):
            stream = self._client.build(
                fileobj=archive,
                custom_context=True,
                dockerfile=name,
                tag=tag,
                buildargs=dict(args),
                labels=dict(labels),
                nocache=not use_cache,
                target=target,
                # Containers of the steps go away, also that of the step that failed.
                rm=True,
                forcerm=True,
                decode=True,
            )
            try:
                _follow(steps.following(stream), action=f"build `{tag}`", progress=progress)
            finally:
                steps.remove(self._client)

    @contextmanager
    def _in_the_place_of(self, tag: str, labels: Mapping[str, str]) -> Iterator[None]:
        """Remove the image that has the name now, once another has it, if it is one of ours."""
        before = self.image_info(tag) if labels else None
        yield
        if before is not None and labels.keys() <= before.labels.keys():
            remove_unnamed(self._client, before.id, parents=True)

    def tag(self, image: str, *, tag: str) -> None:
        """Give an image a second name."""
        repository, name = _split(tag)
        with translated(f"tag `{image}`"):
            self._client.tag(image, repository, tag=name, force=True)


@contextmanager
def _archive(
    context: Path, dockerfile: str, left_out: frozenset[str]
) -> Iterator[tuple[IO[bytes], str]]:
    """Pack what a build sees, as the SDK does; give the archive and the Dockerfile's name in it.

    Raises:
        OSError: A file cannot be read.
    """
    root = str(context.resolve())
    lines = _ignore_lines(context / ".dockerignore")
    ignored = [line for line in map(str.strip, lines) if line and not line.startswith("#")]
    name, text = process_dockerfile(dockerfile, root)
    inside = name or dockerfile
    paths = sorted(exclude_paths(root, ignored, dockerfile=inside))
    files = [path for path in paths if not _is_below(path.replace(os.sep, "/"), left_out)]
    # A Dockerfile from elsewhere lies beside the context's files, and is not copied with them.
    beside: list[tuple[str, str]] = []
    if text is not None:
        beside = [(".dockerignore", "\n".join([*ignored, inside])), (inside, text)]
    with TemporaryFile() as archive:
        create_archive(root, files=files, fileobj=archive, extra_files=beside)
        yield archive, inside


def _ignore_lines(listed: Path) -> list[str]:
    """Read a context's `.dockerignore`; a build may see its lines, so that no link is followed.

    Raises:
        ImageBuildError: It cannot be read, is a link, is no file or is too large.
    """
    try:
        with open_regular(listed) as file:
            data = file.read(_LARGEST_IGNORE + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        what = "a link, which is not followed" if error.errno == errno.ELOOP else "unreadable"
        raise ImageBuildError(f"{listed} is {what}") from error
    if len(data) > _LARGEST_IGNORE:
        raise ImageBuildError(f"{listed} has more than {_LARGEST_IGNORE} bytes")
    return data.decode(errors="surrogateescape").splitlines()


def _is_below(path: str, folders: frozenset[str]) -> bool:
    ends = (place for place, letter in enumerate(f"{path}/") if letter == "/")
    return any(path[:end] in folders for end in ends)


def _listed(image: Mapping[str, Any]) -> ImageInfo:
    """Describe an image as a list of them does."""
    created = datetime.fromtimestamp(image["Created"], UTC).isoformat()
    labels = image.get("Labels") or {}
    return ImageInfo(id=image["Id"], size=image["Size"], created=created, labels=labels)


def _split(image: str) -> tuple[str, str | None]:
    repository, tag = parse_repository_tag(image)
    # Without a tag, docker-py would pull every one there is.
    return repository, tag or "latest"


@contextmanager
def _building(action: str) -> Iterator[None]:
    """Whatever the daemon refuses here is about the image, not about the engine."""
    try:
        with translated(action):
            yield
    except (EngineUnavailableError, ImageBuildError):
        raise
    except OrchestratorError as error:
        raise ImageBuildError(error.message) from error
    except OSError as error:
        raise ImageBuildError(f"cannot {action}: {one_line(str(error))}") from error


def _follow(stream: Iterable[dict[str, Any]], *, action: str, progress: Progress) -> None:
    """Read a stream of the daemon's to its end.

    Raises:
        ImageBuildError: It tells of an error.
    """
    last: deque[str] = deque(maxlen=_LAST_LINES)
    for event in stream:
        if "error" in event:
            raise ImageBuildError(_failure(action, str(event["error"]), last))
        for line in _lines(event):
            last.append(line)
            progress(line)


def _lines(event: Mapping[str, Any]) -> list[str]:
    # Progress bars come several times a second and layer; their beginnings and ends do without.
    if event.get("progressDetail"):
        return []
    text = _COLOUR.sub("", str(event.get("stream") or event.get("status") or ""))
    prefix = f"{event['id']}: " if event.get("id") else ""
    return [one_line(prefix + line) for line in text.splitlines() if line.strip()]


def _failure(action: str, error: str, last: Iterable[str]) -> str:
    head = f"cannot {action}: {one_line(error, limit=500)}"
    return "\n".join([head, *(f"  {line}" for line in last)])
