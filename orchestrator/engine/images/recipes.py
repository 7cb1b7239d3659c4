"""Source files, hashes and build arguments of the orchestrator's own images."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orchestrator.base.errors import ImageBuildError
from orchestrator.engine.images.debian import SUITE
from orchestrator.engine.images.names import BASE_IMAGE, BROKER_IMAGE, worker_image

WORKER_FILE: Final = "Dockerfile.worker"
BASE_FILE: Final = "images/Dockerfile.base"
PACKAGES_FILE: Final = "images/base-packages.txt"
BROKER_FILES: Final = ("images/Dockerfile.broker", "images/broker.txt")
"""Files from which the credential broker's image is built; the Dockerfile comes first."""
INSTALLERS: Final = {
    "architect": "pip",
    "claude": "npm",
    "codex": "npm",
    "gemini": "npm",
    "opencode": "npm",
    "mini": "pip",
    "aider": "pip",
}
"""Agent programs that have an image, each with the package manager that installs it."""

RECIPE: Final = "orchestrator.recipe"
"""Label with a hash of the files and the base image that an image was built from."""

_PACKAGE = Path(__file__).parents[2]
_SCRIPT = "images/install-agent.sh"
_BUNDLE = "ca-bundle.crt"
_BUNDLE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_DEFAULT_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "ftp_proxy", "all_proxy")
_INDEX_VARIABLES = {
    "pip": ("PIP_INDEX_URL", ("PIP_INDEX_URL",)),
    "npm": ("npm_config_registry", ("npm_config_registry", "NPM_CONFIG_REGISTRY")),
}


def build_files() -> Path:
    """Return the folder with the Dockerfiles, in the installed package or in the source checkout.

    Raises:
        ImageBuildError: The Dockerfiles are in neither place.
    """
    for folder in (_PACKAGE / "_images", _PACKAGE.parent):
        if (folder / WORKER_FILE).is_file():
            return folder
    raise ImageBuildError(
        f"`{WORKER_FILE}` is missing from this installation",
        key="installation.incomplete",
        hint="reinstall `worktree-orchestrator`",
    )


def base_packages() -> tuple[str, ...]:
    """Return the Debian packages of the base image."""
    return tuple((build_files() / PACKAGES_FILE).read_text().split())


def agent_files(agent: str) -> tuple[str, ...]:
    """Return the files from which an agent program's image is built, relative to `build_files()`.

    The Dockerfile comes first.
    """
    ending = "txt" if INSTALLERS[agent] == "pip" else "sh"
    return WORKER_FILE, _SCRIPT, f"images/agents/{agent}.{ending}"


def base_recipe() -> str:
    """Return the hash of the files from which the base image is built."""
    # The upstream image's id is not part of the hash: the base may be bootstrapped from packages on
    # one day and built on the upstream image on the next.
    return recipe_hash(SUITE, *_texts((BASE_FILE, PACKAGES_FILE)))


def agent_recipe(agent: str, base: str) -> str:
    """Return the hash of the files and the base image of an agent program's image."""
    return recipe_hash(*_texts(agent_files(agent)), base)


def broker_recipe(base: str) -> str:
    """Return the hash of the files and the base image from which the broker's image is built."""
    return recipe_hash(*_texts(BROKER_FILES), base)


def wanted_recipes() -> dict[str, str]:
    """Return the hash of each image's recipe, by name; bases count by their recipe.

    The label of an image depends on the id of its base, which differs from build to build.
    """
    base = base_recipe()
    agents = {worker_image(agent): agent_recipe(agent, base) for agent in INSTALLERS}
    return {BASE_IMAGE: base, BROKER_IMAGE: broker_recipe(base), **agents}


def recipe_hash(*ingredients: str) -> str:
    """Return a hash of several texts; their order and boundaries matter."""
    return hashlib.sha256(json.dumps(ingredients).encode()).hexdigest()


def ca_bundle(environ: Mapping[str, str], default: Path = _DEFAULT_BUNDLE) -> Path | None:
    """Return this machine's trusted certificates, which image builds need for downloads."""
    named = (Path(environ[name]) for name in _BUNDLE_VARIABLES if environ.get(name))
    return next((path for path in (*named, default) if path.is_file()), None)


def proxy_args(environ: Mapping[str, str]) -> dict[str, str]:
    """Return this machine's proxy settings as build arguments.

    Docker predefines these arguments: they are set during the build and do not enter the image.
    """
    names = (name for lower in _PROXY_VARIABLES for name in (lower, lower.upper()))
    return {name: environ[name] for name in names if environ.get(name)}


def index_args(installer: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return this machine's package index as a build argument for installing an agent program."""
    argument, names = _INDEX_VARIABLES[installer]
    index = next((environ[name] for name in names if environ.get(name)), None)
    return {argument: index} if index else {}


@contextmanager
def build_context(files: Iterable[str], bundle: bytes | None) -> Iterator[Path]:
    """Create a temporary build context with only the given files and trusted certificates."""
    with tempfile.TemporaryDirectory(prefix="orchestrator-build-") as name:
        folder = Path(name)
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(build_files() / file, folder / file)
        if bundle is not None:
            (folder / _BUNDLE).write_bytes(bundle)
        yield folder


def _texts(files: Iterable[str]) -> tuple[str, ...]:
    top = build_files()
    return tuple((top / file).read_text() for file in files)
