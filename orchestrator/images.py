"""Our two images: the base, and the one with the agent program in it."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.bootstrap import SUITE, bootstrap
from orchestrator.config import BASE_IMAGE, DEFAULT_IMAGE
from orchestrator.engine.base import ImageEngine, ImageInfo, Progress
from orchestrator.errors import ImageBuildError

RECIPE = "orchestrator.recipe"
"""Label: what the image was made from, as a hash."""

_PACKAGE = Path(__file__).parent
_WORKER_FILE = "Dockerfile.worker"
_BASE_FILE = "images/Dockerfile.base"
_PACKAGES_FILE = "images/base-packages.txt"
_UPSTREAM = f"debian:{SUITE}-slim"
_BUNDLE = "ca-bundle.crt"
_BUNDLE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_DEFAULT_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "ftp_proxy", "all_proxy")


@dataclass(frozen=True, kw_only=True)
class ImageStatus:
    """One of our images, as it is now."""

    tag: str
    info: ImageInfo | None
    """None when it is missing."""
    stale: bool
    """It was made by us, from something else than what it would be made from now."""


@dataclass(frozen=True, kw_only=True)
class ImageBuilder:
    """Makes our images; what is there already and up to date is kept."""

    engine: ImageEngine
    environ: Mapping[str, str]
    progress: Progress
    use_cache: bool = True

    def build_base(self, own: str | None = None) -> None:
        """Make `BASE_IMAGE`, or let it be the image `own`.

        Raises:
            ImageBuildError: It can be neither built nor bootstrapped.
        """
        if own is not None:
            self._adopt(own)
            return
        recipe = _base_recipe()
        if self.use_cache and _recipe_of(self.engine, BASE_IMAGE) == recipe:
            self.progress(f"{BASE_IMAGE} is up to date")
        elif self._has_upstream():
            self._build(BASE_IMAGE, _BASE_FILE, (_PACKAGES_FILE,), args={}, recipe=recipe)
        else:
            self._bootstrap_base(recipe)

    def build_worker(self, tag: str = DEFAULT_IMAGE) -> None:
        """Make the image with the agent program out of `BASE_IMAGE`.

        Raises:
            ImageBuildError: A step failed.
        """
        recipe = _worker_recipe(self.engine)
        if self.use_cache and _recipe_of(self.engine, tag) == recipe:
            self.progress(f"{tag} is up to date")
            return
        args = {"BASE": BASE_IMAGE} | index_args(self.environ)
        self._build(tag, _WORKER_FILE, (), args=args, recipe=recipe)

    def _adopt(self, own: str) -> None:
        if self.engine.image_id(own) is None:
            self.engine.pull(own, progress=self.progress)
        self.engine.tag(own, tag=BASE_IMAGE)

    def _has_upstream(self) -> bool:
        if self.use_cache and self.engine.image_id(_UPSTREAM) is not None:
            return True
        self.progress(f"pulling {_UPSTREAM}")
        try:
            self.engine.pull(_UPSTREAM, progress=self.progress)
        except ImageBuildError as error:
            self.progress(error.message)
            return self.engine.image_id(_UPSTREAM) is not None
        return True

    def _bootstrap_base(self, recipe: str) -> None:
        self.progress("no registry to pull from: bootstrapping from packages, about half a minute")
        with tempfile.TemporaryDirectory(prefix="orchestrator-base-") as folder:
            tarball = Path(folder) / "base.tar"
            bootstrap(tarball, base_packages())
            self.progress(f"importing {BASE_IMAGE}")
            self.engine.import_image(tarball, tag=BASE_IMAGE, labels={RECIPE: recipe})

    def _build(
        self, tag: str, dockerfile: str, files: Iterable[str], *, args: dict[str, str], recipe: str
    ) -> None:
        with _context((dockerfile, *files), ca_bundle(self.environ)) as context:
            self.engine.build(
                context,
                dockerfile=dockerfile,
                tag=tag,
                args=args | proxy_args(self.environ),
                labels={RECIPE: recipe},
                progress=self.progress,
                use_cache=self.use_cache,
            )


def image_statuses(engine: ImageEngine) -> tuple[ImageStatus, ...]:
    """Tell which of our images are there, and which would be made anew."""
    wanted = {BASE_IMAGE: _base_recipe(), DEFAULT_IMAGE: _worker_recipe(engine)}
    return tuple(_status(engine, tag, recipe) for tag, recipe in wanted.items())


def _status(engine: ImageEngine, tag: str, recipe: str) -> ImageStatus:
    info = engine.image_info(tag)
    label = info.labels.get(RECIPE) if info else None
    return ImageStatus(tag=tag, info=info, stale=label is not None and label != recipe)


def build_files() -> Path:
    """Find the folder with the Dockerfiles: in an installed package, or in the source checkout.

    Raises:
        ImageBuildError: They are in neither.
    """
    for folder in (_PACKAGE / "_images", _PACKAGE.parent):
        if (folder / _WORKER_FILE).is_file():
            return folder
    raise ImageBuildError(
        f"`{_WORKER_FILE}` is missing from this installation", hint="install `orchestrator` again"
    )


def base_packages() -> tuple[str, ...]:
    """List the packages of the base."""
    return tuple((build_files() / _PACKAGES_FILE).read_text().split())


def ca_bundle(environ: Mapping[str, str], default: Path = _DEFAULT_BUNDLE) -> Path | None:
    """Find the certificates this machine trusts: an image build needs them to fetch packages."""
    named = (Path(environ[name]) for name in _BUNDLE_VARIABLES if environ.get(name))
    return next((path for path in (*named, default) if path.is_file()), None)


def proxy_args(environ: Mapping[str, str]) -> dict[str, str]:
    """Give this machine's proxies as build arguments.

    The engine knows these by itself: they are set while it builds, and leave no trace in an image.
    """
    names = (name for lower in _PROXY_VARIABLES for name in (lower, lower.upper()))
    return {name: environ[name] for name in names if environ.get(name)}


def index_args(environ: Mapping[str, str]) -> dict[str, str]:
    """Give this machine's package index as a build argument of the stage that uses pip."""
    index = environ.get("PIP_INDEX_URL")
    return {"PIP_INDEX_URL": index} if index else {}


def recipe_hash(*ingredients: str) -> str:
    """Condense what an image is made from; the order counts, and where one ends."""
    return hashlib.sha256(json.dumps(ingredients).encode()).hexdigest()


def _base_recipe() -> str:
    # Not the upstream image's id: the base may be bootstrapped on one day and built on the next.
    files = build_files()
    texts = (files / _BASE_FILE).read_text(), (files / _PACKAGES_FILE).read_text()
    return recipe_hash(SUITE, *texts)


def _worker_recipe(engine: ImageEngine) -> str:
    base = engine.image_id(BASE_IMAGE) or ""
    return recipe_hash((build_files() / _WORKER_FILE).read_text(), base)


def _recipe_of(engine: ImageEngine, tag: str) -> str | None:
    info = engine.image_info(tag)
    return info.labels.get(RECIPE) if info else None


@contextmanager
def _context(files: Iterable[str], bundle: Path | None) -> Iterator[Path]:
    """Lay out what a build sees: these files and the certificates, and nothing else of ours."""
    with tempfile.TemporaryDirectory(prefix="orchestrator-build-") as name:
        folder = Path(name)
        for file in files:
            (folder / file).parent.mkdir(exist_ok=True)
            shutil.copyfile(build_files() / file, folder / file)
        if bundle is not None:
            shutil.copyfile(bundle, folder / _BUNDLE)
        yield folder
