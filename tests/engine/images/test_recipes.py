"""Tests of the inputs of images, and of when an image is built."""

import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

from orchestrator.base.errors import ImageBuildError
from orchestrator.engine.images import builder as images
from orchestrator.engine.images import recipes
from orchestrator.engine.images.builder import ImageBuilder, ImageStatus, image_statuses
from orchestrator.engine.images.names import (
    BASE_IMAGE,
    BROKER_IMAGE,
    DEFAULT_IMAGE,
    image_hint,
    worker_image,
)
from orchestrator.engine.images.recipes import (
    INSTALLERS,
    ca_bundle,
    index_args,
    proxy_args,
    recipe_hash,
)
from orchestrator.engine.interface.image_protocol import ImageBuild, ImageInfo, Progress
from orchestrator.faces.cli.commands.image import AgentImage
from tests.support.errors import raises

AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBcTCCARegAwIBAgIUIzxfTQaH438xU8UEAft63qWcZyAwCgYIKoZIzj0EAwIw
DjEMMAoGA1UEAwwDb25lMB4XDTI2MTEyOTA4NTUxOFoXDTI2MTIyOTA4NTUxOFow
DjEMMAoGA1UEAwwDb25lMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEFZSaqxcI
1xU7Hts9Db5JFcXBUMIocDF0kswYX40O/PiaQz6Xu9HTNxFuCuvwh+0dLxlu/1WB
6Mz4CAmRBiCAjKNTMFEwHQYDVR0OBBYEFC6zZ6kVxcu0FrE2RVtBf747mSYBMB8G
A1UdIwQYMBaAFC6zZ6kVxcu0FrE2RVtBf747mSYBMA8GA1UdEwEB/wQFMAMBAf8w
CgYIKoZIzj0EAwIDSAAwRQIgNSu/h/3MxLnuKKt111pg75fhwzYtfof5l65NYGGR
Yy4CIQDFHtwMSem/ywVD7U/nUmKeX3rk/WJopLuZTuToQ1/ltw==
-----END CERTIFICATE-----
"""
UPSTREAM = "debian:trixie-slim"


@dataclass(frozen=True)
class Build:
    tag: str
    dockerfile: str
    files: Mapping[str, str]
    args: Mapping[str, str]
    use_cache: bool
    target: str | None = None


@dataclass
class ShelfEngine:
    """An engine that only stores images."""

    registry: set[str] = field(default_factory=set)
    shelf: dict[str, ImageInfo] = field(default_factory=dict)
    builds: list[Build] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)

    def put(self, tag: str, labels: Mapping[str, str]) -> None:
        count = len(self.builds) + len(self.imports) + len(self.shelf)
        self.shelf[tag] = ImageInfo(
            id=f"sha256:{count}", size=1, created="2026-01-02T03:04:05Z", labels=dict(labels)
        )

    def image_id(self, image: str) -> str | None:
        return self.shelf[image].id if image in self.shelf else None

    def image_info(self, image: str) -> ImageInfo | None:
        return self.shelf.get(image)

    def labelled_images(self, label: str) -> Mapping[str, ImageInfo]:
        return {tag: info for tag, info in self.shelf.items() if label in info.labels}

    def pull(self, image: str, *, progress: Progress) -> None:
        progress(f"pulling {image}")
        if image not in self.registry:
            raise ImageBuildError(f"cannot pull `{image}`: no such host", key="build.failed")
        self.put(image, {})

    def import_image(self, tarball: Path, *, tag: str, labels: Mapping[str, str]) -> None:
        assert tarfile.is_tarfile(tarball)
        self.imports.append(tag)
        self.put(tag, labels)

    def build(self, image: ImageBuild, *, progress: Progress) -> None:
        progress(f"building {image.tag}")
        files = {
            str(path.relative_to(image.context)): path.read_text()
            for path in image.context.rglob("*")
            if path.is_file()
        }
        self.builds.append(
            Build(
                image.tag, image.dockerfile, files, dict(image.args), image.use_cache, image.target
            )
        )
        self.put(image.tag, image.labels)

    def tag(self, image: str, *, tag: str) -> None:
        self.shelf[tag] = self.shelf[image]

    def files(
        self, image: str, top: str, wanted: Callable[[str], bool]
    ) -> Iterator[tuple[str, bytes]]:
        raise NotImplementedError

    def save(self, images: Sequence[str]) -> Iterator[bytes]:
        raise NotImplementedError

    def push(self, image: str, *, name: str, progress: Progress) -> str:
        raise NotImplementedError

    def load(self, archive: IO[bytes]) -> None:
        raise NotImplementedError

    def remove_image(self, image: str) -> None:
        del self.shelf[image]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "private.crt"
    path.write_text(f"{AUTHORITY}-----BEGIN PRIVATE KEY-----\na2V5\n-----END PRIVATE KEY-----\n")
    return path


def builder_for(
    engine: ShelfEngine, *, environ: Mapping[str, str] | None = None, use_cache: bool = True
) -> ImageBuilder:
    return ImageBuilder(
        engine=engine, environ=environ or {}, progress=lambda _: None, use_cache=use_cache
    )


def write_tarball(tarball: Path, packages: tuple[str, ...]) -> None:
    assert "git" in packages
    assert "python3" in packages
    tarfile.open(tarball, "w").close()


def forbid_bootstrap(tarball: Path, packages: tuple[str, ...]) -> None:
    raise AssertionError(f"bootstrapped {packages} into {tarball}, although a registry answers")


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (("PIP_CERT", "SSL_CERT_FILE"), "PIP_CERT"),
        (("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"), "SSL_CERT_FILE"),
        (("CURL_CA_BUNDLE",), "CURL_CA_BUNDLE"),
        ((), "default"),
    ],
)
def test_most_specific_certificates_are_used(
    tmp_path: Path, names: tuple[str, ...], chosen: str
) -> None:
    for name in (*names, "default"):
        (tmp_path / name).write_text(name)
    environ = {name: str(tmp_path / name) for name in names}
    assert ca_bundle(environ, tmp_path / "default") == tmp_path / chosen


def test_missing_certificates_are_skipped(tmp_path: Path, bundle: Path) -> None:
    environ = {"PIP_CERT": str(tmp_path / "gone"), "SSL_CERT_FILE": str(bundle)}
    assert ca_bundle(environ, tmp_path / "default") == bundle
    assert ca_bundle({"PIP_CERT": ""}, tmp_path / "default") is None


def test_proxy_variables_keep_their_case() -> None:
    environ = {"HTTPS_PROXY": "http://p:1", "no_proxy": "here", "http_proxy": "", "HOME": "/root"}
    assert proxy_args(environ) == {"HTTPS_PROXY": "http://p:1", "no_proxy": "here"}


def test_empty_index_variable_is_ignored() -> None:
    assert index_args("pip", {"PIP_INDEX_URL": "http://i"}) == {"PIP_INDEX_URL": "http://i"}
    assert index_args("pip", {"PIP_INDEX_URL": ""}) == {}


@pytest.mark.parametrize("name", ["npm_config_registry", "NPM_CONFIG_REGISTRY"])
def test_index_is_passed_only_to_its_installer(name: str) -> None:
    environ = {"PIP_INDEX_URL": "http://pip", name: "http://npm"}
    assert index_args("npm", environ) == {"npm_config_registry": "http://npm"}
    assert index_args("pip", environ) == {"PIP_INDEX_URL": "http://pip"}


def test_hash_depends_on_boundaries_and_order() -> None:
    hashes = {recipe_hash(*i) for i in [("ab", "c"), ("a", "bc"), ("abc",), ("c", "ab")]}
    assert len(hashes) == 4


def test_base_is_built_if_a_registry_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "bootstrap", forbid_bootstrap)
    engine = ShelfEngine(registry={UPSTREAM})
    builder_for(engine).build_base()
    (build,) = engine.builds
    assert (build.tag, build.dockerfile) == (BASE_IMAGE, "images/Dockerfile.base")
    assert f"FROM {UPSTREAM}\n" in build.files[build.dockerfile]
    assert "git" in build.files["images/base-packages.txt"].split()


def test_base_is_bootstrapped_without_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "bootstrap", write_tarball)
    engine = ShelfEngine()
    builder_for(engine).build_base()
    assert engine.imports == [BASE_IMAGE]
    assert engine.builds == []


def test_up_to_date_image_is_not_rebuilt() -> None:
    engine = ShelfEngine(registry={UPSTREAM})
    for _ in range(2):
        builder_for(engine).build_base()
        builder_for(engine).build_worker("architect")
    assert [build.tag for build in engine.builds] == [BASE_IMAGE, DEFAULT_IMAGE]


def test_no_cache_rebuilds_everything() -> None:
    engine = ShelfEngine(registry={UPSTREAM})
    for use_cache in (True, False):
        builder_for(engine, use_cache=use_cache).build_base()
        builder_for(engine, use_cache=use_cache).build_worker("architect")
    assert [build.use_cache for build in engine.builds] == [True, True, False, False]


def stale(engine: ShelfEngine) -> list[str]:
    return [status.tag for status in image_statuses(engine) if status.stale]


def test_a_new_base_makes_the_worker_image_stale() -> None:
    engine = ShelfEngine(registry={UPSTREAM, "mine:1"})
    builder_for(engine).build_base()
    builder_for(engine).build_worker("architect")
    assert stale(engine) == []
    builder_for(engine).build_base("mine:1")
    assert stale(engine) == [DEFAULT_IMAGE]
    builder_for(engine).build_worker("architect")
    assert stale(engine) == []
    assert len(engine.builds) == 3


def test_missing_custom_base_is_an_error() -> None:
    with pytest.raises(ImageBuildError, match="mine:1"):
        builder_for(ShelfEngine()).build_base("mine:1")


def test_broker_image_is_built_from_its_own_files_until_they_change() -> None:
    engine = ShelfEngine(registry={UPSTREAM})
    builder = builder_for(engine, environ={"PIP_INDEX_URL": "http://index"})
    builder.build_base()
    assert builder.build_broker() == builder.build_broker() == BROKER_IMAGE
    _, build = engine.builds
    assert {"images/Dockerfile.broker", "images/broker.txt"} <= set(build.files)
    assert build.args == {"BASE": BASE_IMAGE, "PIP_INDEX_URL": "http://index"}


def test_missing_images_are_listed() -> None:
    tags = [BASE_IMAGE, BROKER_IMAGE, *(worker_image(agent) for agent in INSTALLERS)]
    missing = [ImageStatus(tag=tag, info=None, stale=False) for tag in tags]
    assert list(image_statuses(ShelfEngine())) == missing


def test_build_context_contains_only_its_files_and_certificates(bundle: Path) -> None:
    engine = ShelfEngine(registry={UPSTREAM})
    environ = {"PIP_CERT": str(bundle), "PIP_INDEX_URL": "http://index", "HTTP_PROXY": "http://p"}
    builder_for(engine, environ=environ).build_worker("architect")
    (build,) = engine.builds
    assert set(build.files) == {
        "Dockerfile.worker",
        "ca-bundle.crt",
        "images/agents/architect.txt",
        "images/install-agent.sh",
    }
    assert build.files["ca-bundle.crt"] == AUTHORITY
    assert build.args == {
        "AGENT": "architect",
        "BASE": BASE_IMAGE,
        "INSTALLER": "pip",
        "HTTP_PROXY": "http://p",
        "PIP_INDEX_URL": "http://index",
    }


def test_missing_build_files_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "_PACKAGE", tmp_path / "orchestrator")
    with raises("installation.incomplete", "`Dockerfile.worker`"):
        recipes.build_files()


def test_change_of_one_agents_files_makes_only_its_image_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "_images"
    shutil.copytree(recipes.build_files() / "images", copy / "images")
    shutil.copy(recipes.build_files() / recipes.WORKER_FILE, copy)
    monkeypatch.setattr(recipes, "_PACKAGE", tmp_path)
    engine = ShelfEngine(registry={UPSTREAM})
    builder_for(engine).build_base()
    for agent in INSTALLERS:
        builder_for(engine).build_worker(agent)
    assert stale(engine) == []
    with (copy / "images" / "agents" / "claude.sh").open("a") as file:
        file.write("# another version\n")
    assert stale(engine) == [worker_image("claude")]
    with (copy / "images" / "install-agent.sh").open("a") as file:
        file.write("# another way\n")
    assert stale(engine) == [worker_image(agent) for agent in INSTALLERS]


def test_every_agent_with_files_has_an_image() -> None:
    files = (recipes.build_files() / "images" / "agents").iterdir()
    assert sorted(file.stem for file in files) == sorted(INSTALLERS)
    assert {agent.value for agent in AgentImage} == {*INSTALLERS, "shell", "broker"}


@pytest.mark.parametrize(
    ("image", "hint"),
    [
        (worker_image("claude"), "build the image with `orchestrator image build --agent claude`"),
        (BASE_IMAGE, "build the image with `orchestrator image build --agent shell`"),
        (
            "orchestrator/project:claude-0123",
            "build the project's image with `orchestrator image build --from PATH`",
        ),
        ("mine:1", "pull or build the image"),
    ],
)
def test_hint_for_a_missing_image_names_the_command(image: str, hint: str) -> None:
    assert image_hint(image) == hint
