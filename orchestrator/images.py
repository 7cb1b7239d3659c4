"""Our images: the base, and one for each agent program."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.bootstrap import SUITE, bootstrap
from orchestrator.config import BASE_IMAGE, worker_image
from orchestrator.engine.base import ImageEngine, ImageInfo, Progress
from orchestrator.errors import ImageBuildError
from orchestrator.recipes import (
    BASE_FILE,
    INSTALLERS,
    PACKAGES_FILE,
    agent_files,
    agent_recipe,
    base_packages,
    base_recipe,
    build_context,
    ca_bundle,
    index_args,
    proxy_args,
)

RECIPE = "orchestrator.recipe"
"""Label: what the image was made from, as a hash."""

_UPSTREAM = f"debian:{SUITE}-slim"


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
        recipe = base_recipe()
        if self.use_cache and _recipe_of(self.engine, BASE_IMAGE) == recipe:
            self.progress(f"{BASE_IMAGE} is up to date")
        elif self._has_upstream():
            self._build(BASE_IMAGE, (BASE_FILE, PACKAGES_FILE), args={}, recipe=recipe)
        else:
            self._bootstrap_base(recipe)

    def build_worker(self, agent: str, tag: str | None = None) -> str:
        """Make the image with that agent program out of `BASE_IMAGE`, and name it.

        Raises:
            ImageBuildError: A step failed.
        """
        tag = tag or worker_image(agent)
        recipe = agent_recipe(agent, self.engine.image_id(BASE_IMAGE) or "")
        if self.use_cache and _recipe_of(self.engine, tag) == recipe:
            self.progress(f"{tag} is up to date")
            return tag
        installer = INSTALLERS[agent]
        args = {"BASE": BASE_IMAGE, "INSTALLER": installer, "AGENT": agent}
        args |= index_args(installer, self.environ)
        self._build(tag, agent_files(agent), args=args, recipe=recipe)
        return tag

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
        self,
        tag: str,
        files: tuple[str, ...],
        *,
        args: dict[str, str],
        recipe: str,
    ) -> None:
        with build_context(files, ca_bundle(self.environ)) as context:
            self.engine.build(
                context,
                dockerfile=files[0],
                tag=tag,
                args=args | proxy_args(self.environ),
                labels={RECIPE: recipe},
                progress=self.progress,
                use_cache=self.use_cache,
            )


def image_statuses(engine: ImageEngine) -> tuple[ImageStatus, ...]:
    """Tell which of our images are there, and which would be made anew."""
    base = engine.image_id(BASE_IMAGE) or ""
    wanted = {BASE_IMAGE: base_recipe()}
    wanted |= {worker_image(agent): agent_recipe(agent, base) for agent in INSTALLERS}
    return tuple(_status(engine, tag, recipe) for tag, recipe in wanted.items())


def _status(engine: ImageEngine, tag: str, recipe: str) -> ImageStatus:
    info = engine.image_info(tag)
    label = info.labels.get(RECIPE) if info else None
    return ImageStatus(tag=tag, info=info, stale=label is not None and label != recipe)


def _recipe_of(engine: ImageEngine, tag: str) -> str | None:
    info = engine.image_info(tag)
    return info.labels.get(RECIPE) if info else None
