"""Read how to build a project's own image, from its Dockerfile or devcontainer.json."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.text.sanitize import one_line
from orchestrator.engine.images.recipes import recipe_hash

_NAMES: Final = (".devcontainer/devcontainer.json", ".devcontainer.json", "Dockerfile")
"""Names of the files that are searched for in a project's folder; the first that exists is used."""
LOCK_FILES: Final = (
    ".dockerignore",
    "uv.lock",
    "poetry.lock",
    "requirements*.txt",
    "package-lock.json",
    "pnpm-lock.yaml",
    "yarn.lock",
    "Cargo.lock",
    "go.sum",
    "Gemfile.lock",
)
_LARGEST: Final = 1024**2
"""Maximum size in bytes of a devcontainer.json file."""
_LARGEST_SOURCE: Final = 64 * 1024**2
"""Maximum number of bytes of a Dockerfile or lock file that the hash covers; the rest is ignored.
"""
_REFUSED: Final = {
    "features": "write the installation into a Dockerfile and name that file as `build.dockerfile`",
    "dockerComposeFile": "pass the Dockerfile of the service: `--from FILE`",
}
_NEEDLESS: Final = frozenset({"$schema", "name", "customizations", "settings", "extensions"})
# An unclosed string or comment matches to the end of the text. Otherwise the search for its end
# would start again at every character.
_STRING = r'("(?:\\.|[^"\\])*(?:"|\Z))'
_COMMENT = re.compile(_STRING + r"|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMA = re.compile(_STRING + r"|,(?=\s*[}\]])")


@dataclass(frozen=True, kw_only=True)
class ProjectImage:
    """How to build a project's image."""

    source: Path
    """The Dockerfile or devcontainer.json with the build instructions."""
    digest: str
    """Hash of the build instructions, and of the lock files that pin dependencies."""
    image: str | None = None
    """Name of a ready-made image; None: the image is built from `dockerfile` in `context`."""
    dockerfile: Path
    context: Path
    args: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    left_out: frozenset[str] = frozenset()
    """Paths below the context, with `/` between components, that the build must not see."""
    unused: tuple[str, ...] = ()
    """Keys of a devcontainer.json that have no effect here, because they are unknown or do not
    concern the image.
    """


def _as_text(value: object) -> object:
    """Return a number, `true` or `false` as the text that it is in the file."""
    return json.dumps(value) if isinstance(value, (bool, int, float)) else value


class _Build(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, hide_input_in_errors=True)

    dockerfile: str
    context: str = "."
    args: dict[str, Annotated[str, BeforeValidator(_as_text)]] = Field(default_factory=dict)
    target: str | None = None


class _Devcontainer(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, hide_input_in_errors=True)

    image: str | None = None
    build: _Build | None = None


def read_project(path: Path) -> ProjectImage:
    """Read the build instructions of a project folder or of one file.

    Raises:
        ConfigError: There is no such file, or it needs a feature that is not supported.
    """
    source = _find(path.resolve())
    if leads_out(source, source.parent if path.is_file() else path.resolve()):
        raise ConfigError(
            f"{source} is a link that leads out of the project's folder", key="devcontainer.outside"
        )
    if source.suffix == ".json":
        return _read_devcontainer(source)
    return ProjectImage(
        source=source,
        digest=_digest(source.parent, (source,), source.parent),
        dockerfile=source,
        context=source.parent,
    )


def _find(path: Path) -> Path:
    if path.is_file():
        return path
    source = next((path / name for name in _NAMES[:2] if (path / name).is_file()), None)
    several = sorted(path.glob(".devcontainer/*/devcontainer.json"))
    if source is None and len(several) > 1:
        raise ConfigError(
            f"there are {len(several)} dev containers in {path}",
            key="devcontainer.several",
            hint=f"name one: `--from {shlex.quote(str(several[0]))}`",
        )
    names = (*several, path / _NAMES[2])
    source = source or next((name for name in names if name.is_file()), None)
    if source is None:
        what = (
            "there is no Dockerfile and no devcontainer.json in this folder"
            if path.is_dir()
            else "no such file"
        )
        raise ConfigError(
            f"{what}: {path}",
            key="devcontainer.missing",
            hint="`--from` takes a Dockerfile, a devcontainer.json, or a folder with either "
            "of these",
        )
    return source


def _read_devcontainer(source: Path) -> ProjectImage:
    said = _parse(source)
    if isinstance(said.get("dockerFile"), str) and isinstance(said.get("build", {}), dict):
        # The form of older files.
        legacy = {"dockerfile": said.pop("dockerFile"), "context": said.pop("context", ".")}
        said["build"] = {**legacy, **said.get("build", {})}
    for key, hint in _REFUSED.items():
        if said.get(key):
            raise ConfigError(
                f"{source}: `{key}` is not supported", key="devcontainer.unsupported", hint=hint
            )
    try:
        container = _Devcontainer.model_validate(said)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"{source}: `{one_line(key)}`: {one_line(first['msg'])}", key="devcontainer.invalid"
        ) from error
    _refuse_variables(source, container)
    return _of_devcontainer(source, container)


def _of_devcontainer(source: Path, container: _Devcontainer) -> ProjectImage:
    top = next((p.parent for p in source.parents if p.name == ".devcontainer"), source.parent)
    build = container.build or _Build(dockerfile=source.name)
    if container.build is None and container.image is None:
        raise ConfigError(
            f"{source}: either `image` or `build.dockerfile` is required",
            key="devcontainer.incomplete",
        )
    dockerfile = _inside(top, source, "build.dockerfile", build.dockerfile)
    context = _inside(top, source, "build.context", build.context)
    return ProjectImage(
        source=source,
        digest=_digest(top, (source, dockerfile), context),
        image=None if container.build else container.image,
        dockerfile=dockerfile,
        context=context,
        args=build.args,
        target=build.target,
        unused=tuple(one_line(key) for key in _unused(container)),
    )


def _digest(top: Path, sources: Iterable[Path], context: Path) -> str:
    files = dict.fromkeys((*sources, *_lock_files(top), *_lock_files(context)))
    parts = ((str(file.relative_to(top)), _text(file)) for file in files)
    return recipe_hash(*chain.from_iterable(parts))


def _lock_files(folder: Path) -> Iterator[Path]:
    for pattern in LOCK_FILES:
        found = (path for path in folder.glob(pattern) if not leads_out(path, folder))
        yield from sorted(path for path in found if path.is_file())


def leads_out(path: Path, folder: Path) -> bool:
    """Return whether symbolic links lead from a path in a folder to a place outside the folder.

    Such a file is hidden from a build: reading it could expose a file of the host or block
    forever.
    """
    # protection: links-out-of-project-are-not-followed
    return not path.resolve().is_relative_to(folder.resolve())


def _inside(top: Path, source: Path, key: str, value: str) -> Path:
    """Return the path that the setting `key` of a file names; it must exist in the project."""
    path = (source.parent / value).resolve()
    if not path.is_relative_to(top):
        raise ConfigError(
            f"{source}: `{key}` leads out of the project: {one_line(value)}",
            key="devcontainer.outside",
            hint=f"use a path below {top}",
        )
    if not (path.is_dir() if key == "build.context" else path.is_file()):
        kind = "directory" if key == "build.context" else "file"
        raise ConfigError(
            f"{source}: `{key}` names `{one_line(value)}`, which is not a {kind} of the project",
            key="devcontainer.path-missing",
            hint=f"correct the path, which is relative to {source.parent}",
        )
    return path


def _refuse_variables(source: Path, container: _Devcontainer) -> None:
    build = container.build
    values = [container.image, build and build.target, *(build.args.values() if build else ())]
    if any(value and "${" in value for value in values):
        raise ConfigError(
            f"{source}: variables such as `${{localEnv:NAME}}` are not supported",
            key="devcontainer.variable",
            hint="write the value in place of the variable",
        )


def _unused(container: _Devcontainer) -> Iterator[str]:
    yield from sorted(set(container.model_extra or ()) - _NEEDLESS)
    if container.build:
        yield from (f"build.{key}" for key in sorted(container.build.model_extra or ()))


def _parse(source: Path) -> dict[str, Any]:
    """Parse JSON that may have comments and trailing commas, as a devcontainer.json may have."""
    text = _COMMENT.sub(r"\1", _text(source, most=_LARGEST))
    try:
        said = json.loads(_TRAILING_COMMA.sub(r"\1", text.removeprefix("\ufeff")))
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{source}: invalid JSON: {one_line(str(error))}", key="devcontainer.invalid"
        ) from error
    if not isinstance(said, dict):
        raise ConfigError(f"{source}: must contain a JSON object", key="devcontainer.invalid")
    return said


def _text(file: Path, *, most: int | None = None) -> str:
    try:
        with open_regular(file, follow=True) as content:
            data = content.read((_LARGEST_SOURCE if most is None else most) + 1)
        if most is not None and len(data) > most:
            raise ConfigError(f"{file}: the file is larger than {most} bytes", key="file.too-large")
        return data.decode(errors="surrogateescape" if most is None else "replace")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", key="file.unreadable") from error
