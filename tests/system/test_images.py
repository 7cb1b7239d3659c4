"""Tests of building images on a real daemon."""

import os
import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote

import docker
import pytest

from orchestrator.base.errors import ImageBuildError, ImageNotFoundError
from orchestrator.engine import load_engine
from orchestrator.engine.images.archive import load_images, save_images
from orchestrator.engine.images.builder import ImageBuilder
from orchestrator.engine.images.names import BASE_IMAGE, PROJECT_IMAGES
from orchestrator.engine.images.recipes import RECIPE, build_files, ca_bundle
from orchestrator.engine.images.sbom import software_bill
from orchestrator.engine.interface.image_protocol import ImageBuild
from orchestrator.engine.interface.labels import MANAGED
from orchestrator.engine.interface.protocol import Engine

pytestmark = pytest.mark.docker

# A constant, so that the daemon caches one build instead of one per test run.
MARKER = "# only in the bundle of the machine that builds\n"
WORKER = "orchestrator/test-images:worker"
SCRATCH = "orchestrator/test-images:scratch"
# Split by quotes, so that grep does not find its own command line in /proc.
SEARCH = (
    'grep -rlF "# only in the bundle"" of the machine" /etc /home /opt /root /run /tmp /usr /var'
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = load_engine("docker")
    yield engine
    engine.close()


@pytest.fixture
def scratch(docker_client: docker.DockerClient) -> Iterator[str]:
    """Return a tag whose image is removed after the test."""
    yield SCRATCH
    if docker_client.images.list(SCRATCH):
        docker_client.images.remove(SCRATCH, force=True)


@pytest.fixture(scope="module")
def builder(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> ImageBuilder:
    """Return a builder on a machine with its own certificate authority."""
    bundle = ca_bundle(os.environ)
    assert bundle is not None
    marked = tmp_path_factory.mktemp("certificates") / "bundle.crt"
    marked.write_text(bundle.read_text() + MARKER)
    environ = {**os.environ, "PIP_CERT": str(marked)}
    return ImageBuilder(engine=engine, environ=environ, progress=lambda _: None)


@pytest.fixture(scope="module")
def worker(agent_image: Callable[[str], str]) -> str:
    """Return the image of architect, which `make images` builds."""
    return agent_image("architect")


@pytest.fixture(scope="module")
def marked(builder: ImageBuilder, docker_client: docker.DockerClient) -> Iterator[str]:
    """Build the image of architect with the machine's own certificates; remove it afterwards."""
    builder.build_base()
    builder.build_worker("architect", WORKER)
    yield WORKER
    docker_client.images.remove(WORKER, force=True)


def run(
    docker_client: docker.DockerClient, image: str, command: list[str], **options: object
) -> str:
    output: bytes = docker_client.containers.run(  # type: ignore[call-overload]
        image, command, remove=True, labels={MANAGED: "true"}, network_mode="none", **options
    )
    return output.decode()


def build(engine: Engine, folder: Path, dockerfile: str, *, tag: str) -> list[str]:
    (folder / "Dockerfile").write_text(dockerfile)
    lines: list[str] = []
    engine.build(ImageBuild(context=folder, tag=tag), progress=lines.append)
    return lines


@pytest.mark.timeout(600)
@pytest.mark.extra
def test_certificates_of_the_host_are_not_in_the_image(
    docker_client: docker.DockerClient, marked: str
) -> None:
    found = run(docker_client, marked, ["sh", "-c", f"{SEARCH}; find / -xdev -name 'ca-bundle*'"])
    assert found == ""
    check_history(docker_client, marked)


@pytest.mark.timeout(600)
def test_no_bundle_of_certificates_is_in_the_image(
    docker_client: docker.DockerClient, worker: str
) -> None:
    assert run(docker_client, worker, ["find", "/", "-xdev", "-name", "ca-bundle*"]) == ""
    check_history(docker_client, worker)


def check_history(docker_client: docker.DockerClient, image: str) -> None:
    """Check that no step of a build names the certificates of the machine."""
    history = docker_client.images.get(image).history()
    steps = "\n".join(step["CreatedBy"] for step in history)
    assert "COPY" in steps
    assert "bundle" not in steps
    assert "PIP_" not in steps


@pytest.mark.agents
@pytest.mark.timeout(600)
def test_certificates_of_the_host_are_not_in_an_npm_image(
    builder: ImageBuilder, docker_client: docker.DockerClient, scratch: str
) -> None:
    builder.build_base()
    builder.build_worker("opencode", scratch)
    found = run(docker_client, scratch, ["sh", "-c", f"{SEARCH}; find / -xdev -name 'ca-bundle*'"])
    assert found == ""
    steps = "\n".join(step["CreatedBy"] for step in docker_client.images.get(scratch).history())
    assert "COPY" in steps
    assert "bundle" not in steps
    assert "npm_config" not in steps


@pytest.mark.timeout(600)
def test_search_for_certificates_works(
    engine: Engine, docker_client: docker.DockerClient, tmp_path: Path, scratch: str
) -> None:
    (tmp_path / "ca-bundle.crt").write_text(MARKER)
    build(engine, tmp_path, f"FROM {BASE_IMAGE}\nCOPY ca-bundle.crt /etc/\n", tag=scratch)
    assert run(docker_client, scratch, ["sh", "-c", SEARCH]) == "/etc/ca-bundle.crt\n"


@pytest.mark.timeout(600)
@pytest.mark.extra
def test_architect_starts_as_any_user_with_read_only_files(
    docker_client: docker.DockerClient, worker: str
) -> None:
    output = run(
        docker_client,
        worker,
        ["sh", "-ec", "architect --version; command -v python3; id -u"],
        user="20001:20001",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        environment={"HOME": "/nonexistent"},
    )
    assert output.splitlines() == [
        "architect, version 1.1.0",
        "/usr/bin/python3",
        "20001",
    ]


@pytest.mark.timeout(600)
def test_up_to_date_image_is_not_rebuilt(engine: Engine, worker: str) -> None:
    before = engine.image_info(worker)
    lines: list[str] = []
    again = ImageBuilder(engine=engine, environ=os.environ, progress=lines.append)
    again.build_base()
    again.build_worker("architect", worker)
    assert lines == [f"{BASE_IMAGE} is up to date", f"{worker} is up to date"]
    assert engine.image_info(worker) == before
    assert before is not None
    assert before.size < 450_000_000


def test_output_of_a_build_is_made_harmless(engine: Engine, tmp_path: Path, scratch: str) -> None:
    lines = build(
        engine, tmp_path, f"FROM {BASE_IMAGE}\nRUN printf 'a\\033[31mb\\033]0;c\\n'\n", tag=scratch
    )
    assert "ab\ufffd]0;c" in lines
    assert engine.image_id(scratch) is not None


def test_failed_step_shows_its_last_lines(
    engine: Engine, docker_client: docker.DockerClient, tmp_path: Path, scratch: str
) -> None:
    # On one stream: the engine passes two streams on independently of each other.
    command = "(seq 100; echo the reason is 42) >&2; exit 7"
    with pytest.raises(ImageBuildError) as caught:
        build(engine, tmp_path, f"FROM {BASE_IMAGE}\nRUN {command}\n", tag=scratch)
    head, *lines = caught.value.message.splitlines()
    assert head.startswith(f"cannot build `{scratch}`: ")
    assert "returned a non-zero code: 7" in head
    assert len(lines) == 15
    assert "  the reason is 42" in lines
    assert engine.image_id(scratch) is None
    # The low-level list: inspecting containers of other tests would race with their removal.
    assert [c for c in docker_client.api.containers(all=True) if command in c["Command"]] == []


def test_invalid_dockerfile_is_a_build_error(engine: Engine, tmp_path: Path, scratch: str) -> None:
    with pytest.raises(ImageBuildError, match="cannot build"):
        build(engine, tmp_path, "FORM nothing\n", tag=scratch)


def test_unreachable_registry_is_a_build_error(engine: Engine) -> None:
    with pytest.raises(ImageBuildError, match="cannot pull `localhost:9/none:1`"):
        engine.pull("localhost:9/none:1", progress=lambda _: None)


def small_tarball(folder: Path) -> Path:
    """Write the files of an image with one empty file."""
    with tarfile.open(folder / "root.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("empty"), BytesIO())
    return folder / "root.tar"


def test_imported_image_has_its_labels(engine: Engine, tmp_path: Path, scratch: str) -> None:
    engine.import_image(
        small_tarball(tmp_path), tag=scratch, labels={RECIPE: "a b", "other": 'c"d'}
    )
    info = engine.image_info(scratch)
    assert info is not None
    assert info.labels == {RECIPE: "a b", "other": 'c"d'}


def test_invalid_tarball_is_a_build_error(engine: Engine, tmp_path: Path, scratch: str) -> None:
    tarball = tmp_path / "root.tar"
    tarball.write_bytes(b"not a tarball" * 1000)
    with pytest.raises(ImageBuildError, match="cannot import"):
        engine.import_image(tarball, tag=scratch, labels={})
    assert engine.image_id(scratch) is None


@pytest.mark.parametrize("also", ["alone", pytest.param("base", marks=pytest.mark.extra)])
def test_saved_image_is_loaded_on_a_machine_without_it(
    engine: Engine, docker_client: docker.DockerClient, tmp_path: Path, also: str
) -> None:
    # A name that may be saved; no project has this hash.
    name, file = f"{PROJECT_IMAGES}:test-archive", tmp_path / "images.tar"
    others = [BASE_IMAGE] if "base" in also else []
    if others:
        build(engine, tmp_path, f"FROM {BASE_IMAGE}\nENV ARCHIVE={os.getpid()}\n", tag=name)
    else:
        engine.import_image(small_tarball(tmp_path), tag=name, labels={RECIPE: str(os.getpid())})
    try:
        before = engine.image_id(name)
        saved = save_images(engine, [*others, name], file)
        engine.remove_image(name)
        assert engine.image_id(name) is None
        assert load_images(engine, file, digests=[image.digest for image in saved]) == saved
        assert engine.image_id(name) == before
        assert {image.name for image in saved} == {*others, name}
    finally:
        engine.remove_image(name)
    assert docker_client.images.list(name) == []


@pytest.mark.timeout(600)
def test_bill_of_an_image_has_what_dpkg_and_pip_say(
    engine: Engine, docker_client: docker.DockerClient, worker: str
) -> None:
    bill = software_bill(engine, worker)
    listed = {one["purl"].partition("?")[0]: one for one in bill["components"]}
    said = run(docker_client, worker, ["dpkg-query", "-W", "-f", "${Package}@${Version}\n"])
    packages = {name for name in listed if name.startswith("pkg:deb/debian/")}
    assert {unquote(name.removeprefix("pkg:deb/debian/")) for name in packages} == {*said.split()}
    pinned = (build_files() / "images/agents/architect.txt").read_text().split()
    of_python = {one["name"]: one for name, one in listed.items() if name.startswith("pkg:pypi/")}
    assert of_python["architect-ai-cli"]["version"] == "1.1.0"
    assert len(of_python) == len(pinned)
    assert all("properties" in one for one in of_python.values())


def test_tag_adds_a_name_to_an_image(engine: Engine, scratch: str) -> None:
    engine.tag(BASE_IMAGE, tag=scratch)
    assert engine.image_id(scratch) == engine.image_id(BASE_IMAGE)
    with pytest.raises(ImageNotFoundError):
        engine.tag("orchestrator/test-images:none", tag=scratch)
