"""Build the base image, the image of each agent program, and the images of projects."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.errors import ImageBuildError, OrchestratorError
from orchestrator.config.certificates import read_certificates
from orchestrator.engine.images.debian import SUITE, bootstrap
from orchestrator.engine.images.names import (
    BASE_IMAGE,
    BROKER_IMAGE,
    PROJECT_IMAGES,
    worker_image,
)
from orchestrator.engine.images.project import ProjectImage, read_project
from orchestrator.engine.images.recipes import (
    BASE_FILE,
    BROKER_FILES,
    INSTALLERS,
    PACKAGES_FILE,
    RECIPE,
    agent_files,
    agent_recipe,
    base_packages,
    base_recipe,
    broker_recipe,
    build_context,
    ca_bundle,
    index_args,
    proxy_args,
)
from orchestrator.engine.interface.image_protocol import (
    ImageBuild,
    ImageEngine,
    ImageInfo,
    Progress,
)

PROJECT = "orchestrator.project"
"""Label with the path of the build instructions of a project's image."""
AGENT = "orchestrator.agent"
"""Label with the name of the agent program that was added to a project's image."""

_DIGEST_LENGTH = 12
# Keys are lines that Dockerfile.worker and its script print when they fail.
_HINTS = {
    "there is no git in this image": "agents need git: install it in the image's Dockerfile",
    "there is no python3 in this image": "the agent is a Python program: "
    "install `python3` in the image's Dockerfile",
    "does not start in this image": "the agent program needs glibc and, if it is "
    "written in Python, a supported Python version",
}
_UPSTREAM = f"debian:{SUITE}-slim"


@dataclass(frozen=True, kw_only=True)
class ImageStatus:
    """State of one of the orchestrator's images: missing, up to date or stale."""

    tag: str
    info: ImageInfo | None
    """Description of the image; None when it is missing."""
    stale: bool
    """Whether the files or the base image that the image was built from have changed since."""
    project: str | None = None
    """Path of the file with the build instructions, for a project's own image."""


@dataclass(frozen=True, kw_only=True)
class ImageBuilder:
    """Builds the orchestrator's images, unless they are up to date."""

    engine: ImageEngine
    environ: Mapping[str, str]
    progress: Progress
    use_cache: bool = True

    def build_base(self, own: str | None = None) -> None:
        """Build `BASE_IMAGE`; or, given an image `own`, use that image as `BASE_IMAGE`.

        Raises:
            ImageBuildError: The image can be neither built nor bootstrapped.
        """
        if own is not None:
            self._adopt(own)
            return
        labels = {RECIPE: base_recipe()}
        if self._keeps(BASE_IMAGE, labels):
            return
        if self._has_upstream():
            self._build(BASE_IMAGE, (BASE_FILE, PACKAGES_FILE), args={}, labels=labels)
        else:
            self._bootstrap_base(labels)

    def build_worker(
        self, agent: str, tag: str | None = None, *, project: ProjectImage | None = None
    ) -> str:
        """Build the image with an agent program and return its name.

        Args:
            agent: The agent program.
            tag: Name of the new image. Default: the orchestrator's name for this agent's image.
            project: The project whose image is the base. Default: `BASE_IMAGE`.

        Raises:
            ImageBuildError: A step failed.
        """
        base, version, labels = BASE_IMAGE, self.engine.image_id(BASE_IMAGE) or "", {}
        if project is not None:
            base, version = self.build_project(project), project.digest
            labels = {PROJECT: str(project.source), AGENT: agent}
        name = tag or (project_tag(project, agent) if project else worker_image(agent))
        labels[RECIPE] = agent_recipe(agent, version)
        if self._keeps(name, labels):
            return name
        installer = INSTALLERS[agent]
        args = {"BASE": base, "INSTALLER": installer, "AGENT": agent}
        if installer == "npm":
            # Programs that npm installs do not depend on the base, so the project's image need not
            # have npm.
            args["BUILDER"] = BASE_IMAGE
        args |= index_args(installer, self.environ)
        with _explained():
            self._build(name, agent_files(agent), args=args, labels=labels)
        return name

    def build_broker(self) -> str:
        """Build the image of the credential broker on `BASE_IMAGE`, and return its name.

        Raises:
            ImageBuildError: A step failed.
        """
        labels = {RECIPE: broker_recipe(self.engine.image_id(BASE_IMAGE) or "")}
        if not self._keeps(BROKER_IMAGE, labels):
            args = {"BASE": BASE_IMAGE, **index_args("pip", self.environ)}
            self._build(BROKER_IMAGE, BROKER_FILES, args=args, labels=labels)
        return BROKER_IMAGE

    def build_project(self, project: ProjectImage) -> str:
        """Build or pull a project's own image without an agent program, and return its name.

        Raises:
            ImageBuildError: A build step failed, or the image cannot be pulled.
        """
        if project.image is not None:
            if not self.use_cache or self.engine.image_id(project.image) is None:
                self.engine.pull(project.image, progress=self.progress)
            return project.image
        tag = project_tag(project)
        labels = {RECIPE: project.digest, PROJECT: str(project.source)}
        if not self._keeps(tag, labels):
            image = ImageBuild(
                context=project.context,
                dockerfile=str(project.dockerfile),
                tag=tag,
                args={**project.args, **proxy_args(self.environ)},
                labels=labels,
                use_cache=self.use_cache,
                target=project.target,
                left_out=project.left_out,
            )
            self.engine.build(image, progress=self.progress)
        return tag

    def _keeps(self, tag: str, labels: Mapping[str, str]) -> bool:
        """Return whether the existing image `tag` is up to date and need not be built."""
        if not self.use_cache or _recipe_of(self.engine, tag) != labels[RECIPE]:
            return False
        self.progress(f"{tag} is up to date")
        return True

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

    def _bootstrap_base(self, labels: Mapping[str, str]) -> None:
        self.progress(
            "no registry is reachable: bootstrapping the base from packages, about half a minute"
        )
        with tempfile.TemporaryDirectory(prefix="orchestrator-base-") as folder:
            tarball = Path(folder) / "base.tar"
            bootstrap(tarball, base_packages())
            self.progress(f"importing {BASE_IMAGE}")
            self.engine.import_image(tarball, tag=BASE_IMAGE, labels=labels)

    def _build(
        self,
        tag: str,
        files: tuple[str, ...],
        *,
        args: Mapping[str, str],
        labels: Mapping[str, str],
    ) -> None:
        bundle, authorities = ca_bundle(self.environ), None
        if bundle is not None:
            found = read_certificates(bundle, str(bundle))
            authorities = found.pem
            for notice in found.notices:
                self.progress(notice)
        with build_context(files, authorities) as context:
            image = ImageBuild(
                context=context,
                dockerfile=files[0],
                tag=tag,
                args={**args, **proxy_args(self.environ)},
                labels=labels,
                use_cache=self.use_cache,
            )
            self.engine.build(image, progress=self.progress)


def project_tag(project: ProjectImage, agent: str | None = None) -> str:
    """Return the name of a project's image, with or without an agent program.

    Projects with equal content get the same name.
    """
    digest = project.digest[:_DIGEST_LENGTH]
    return f"{PROJECT_IMAGES}:{agent}-{digest}" if agent else f"{PROJECT_IMAGES}:{digest}"


def image_statuses(engine: ImageEngine) -> tuple[ImageStatus, ...]:
    """Return the states of all images of the orchestrator, including those of projects."""
    base = engine.image_id(BASE_IMAGE) or ""
    wanted = {BASE_IMAGE: base_recipe(), BROKER_IMAGE: broker_recipe(base)}
    wanted |= {worker_image(agent): agent_recipe(agent, base) for agent in INSTALLERS}
    ours = (_status(engine, tag, recipe) for tag, recipe in wanted.items())
    projects = engine.labelled_images(PROJECT).items()
    return *ours, *(_project_status(tag, info) for tag, info in sorted(projects))


def _status(engine: ImageEngine, tag: str, recipe: str) -> ImageStatus:
    info = engine.image_info(tag)
    label = info.labels.get(RECIPE) if info else None
    return ImageStatus(tag=tag, info=info, stale=label is not None and label != recipe)


def _project_status(tag: str, info: ImageInfo) -> ImageStatus:
    stale = info.labels.get(RECIPE) != _project_recipe(info.labels)
    return ImageStatus(tag=tag, info=info, stale=stale, project=info.labels[PROJECT])


def _project_recipe(labels: Mapping[str, str]) -> str | None:
    """Return the hash that a new build would record; None if the project's files are gone."""
    agent = labels.get(AGENT)
    try:
        digest = read_project(Path(labels[PROJECT])).digest
    except (OrchestratorError, ValueError):
        # Any user of the daemon can set this label to something that is no path.
        return None
    if agent is None:
        return digest
    return agent_recipe(agent, digest) if agent in INSTALLERS else None


def _recipe_of(engine: ImageEngine, tag: str) -> str | None:
    info = engine.image_info(tag)
    return info.labels.get(RECIPE) if info else None


@contextmanager
def _explained() -> Iterator[None]:
    """Add a hint to an error in the block, if an agent program does not fit the base image."""
    try:
        yield
    except ImageBuildError as error:
        hint = next((hint for line, hint in _HINTS.items() if line in error.message), error.hint)
        raise ImageBuildError(error.message, key="build.failed", hint=hint) from error
