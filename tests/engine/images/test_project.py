"""Tests of reading a project's Dockerfile or devcontainer.json."""

import os
import shutil
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.engine.docker.images import _archive
from orchestrator.engine.images.project import read_project
from orchestrator.engine.interface.image_protocol import ImageBuild
from tests.support.errors import raises

DEVCONTAINER = """// For editors.
{
  "name": "shop", /* a name */
  "build": {
    "dockerfile": "Dockerfile.dev", // beside this file
    "context": "..",
    "args": {"URL": "http://index//*", "VARIANT": "3,}",},
    "target": "dev",
  },
  "postCreateCommand": "make setup",
  "customizations": {"vscode": {"extensions": ["a", "b",]}},
}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    top = tmp_path / "shop"
    folder = top / ".devcontainer"
    folder.mkdir(parents=True)
    (folder / "devcontainer.json").write_text(DEVCONTAINER)
    (folder / "Dockerfile.dev").write_text("FROM debian\n")
    (top / "Dockerfile").write_text("FROM scratch\n")
    return top


def describe(project: Path, text: str) -> Path:
    path = project / ".devcontainer" / "devcontainer.json"
    path.write_text(text)
    return path


def test_devcontainer_with_comments_is_read(project: Path) -> None:
    image = read_project(project)
    assert image.source == project / ".devcontainer" / "devcontainer.json"
    assert image.image is None
    assert image.dockerfile == project / ".devcontainer" / "Dockerfile.dev"
    assert image.context == project
    assert image.args == {"URL": "http://index//*", "VARIANT": "3,}"}
    assert image.target == "dev"
    assert image.unused == ("postCreateCommand",)


def test_a_devcontainer_may_name_an_image(project: Path) -> None:
    image = read_project(describe(project, '{"image": "debian:13", "features": {}}'))
    assert (image.image, image.unused) == ("debian:13", ("features",))


def test_context_of_a_dockerfile_is_its_folder(project: Path) -> None:
    image = read_project(project / "Dockerfile")
    assert image.dockerfile == image.source == project / "Dockerfile"
    assert image.context == project
    assert image.image is None


def test_dockerfile_is_used_without_a_devcontainer(project: Path) -> None:
    (project / ".devcontainer" / "devcontainer.json").unlink()
    assert read_project(project).source == project / "Dockerfile"


def test_nested_devcontainer_belongs_to_the_project(project: Path) -> None:
    folder = project / ".devcontainer" / "web"
    folder.mkdir()
    source = folder / "devcontainer.json"
    source.write_text('{"build": {"dockerfile": "../../Dockerfile", "context": "../.."}}')
    assert read_project(source).context == project


@pytest.mark.parametrize(
    "file",
    [
        ".devcontainer/devcontainer.json",
        ".devcontainer/Dockerfile.dev",
        ".dockerignore",
        "uv.lock",
        "poetry.lock",
        "requirements.txt",
        "requirements-dev.txt",
        "package-lock.json",
        "pnpm-lock.yaml",
        "yarn.lock",
        "Cargo.lock",
        "go.sum",
        "Gemfile.lock",
    ],
)
def test_digest_changes_with_the_source_files(project: Path, file: str) -> None:
    before = read_project(project).digest
    with (project / file).open("ab") as content:
        content.write(b"\n// \xff")
    after = read_project(project).digest
    assert after != before
    (project / "main.py").write_text("print()")
    assert read_project(project).digest == after


def test_digest_does_not_depend_on_the_path(project: Path) -> None:
    before = read_project(project).digest
    moved = project.rename(project.parent / "store")
    assert read_project(moved).digest == before


def test_lock_files_of_the_context_change_the_digest(project: Path) -> None:
    (project / "api").mkdir()
    source = describe(project, '{"build": {"dockerfile": "Dockerfile.dev", "context": "../api"}}')
    before = read_project(source).digest
    (project / "api" / "go.sum").write_text("x")
    assert read_project(source).digest != before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"image": "a", "features": {"ghcr.io/x": {}}}', "`features` is not supported"),
        ('{"dockerComposeFile": "compose.yaml"}', "`dockerComposeFile` is not supported"),
        ("{}", "either `image` or `build.dockerfile` is required"),
        ('{"build": {"context": ".."}}', "`build.dockerfile`: Field required"),
        ('{"image": 3}', "`image`: Input should be a valid string"),
        ('{"build": {"dockerfile": "Dockerfile.dev", "args": {"A": [3]}}}', "`build.args.A`: "),
        ('{"image": "a:${localEnv:TAG}"}', "variables such as"),
        ('{"build": {"dockerfile": "Dockerfile.dev", "args": {"A": "${x}"}}}', "variables such"),
        (
            '{"build": {"dockerfile": "none"}}',
            "`build.dockerfile` names `none`, which is not a file",
        ),
        (
            '{"build": {"dockerfile": "Dockerfile.dev", "context": "no"}}',
            "`build.context` names `no`, ",
        ),
        ('{"build": {"dockerfile": "../../../../etc/passwd"}}', "leads out of the project"),
        ('{"build": {"dockerfile": "Dockerfile.dev", "context": "../.."}}', "leads out of the"),
        ('{"build": {"dockerfile": "Dockerfile.dev", "context": "/"}}', "leads out of the project"),
        ("[]", "must contain a JSON object"),
        ('{"image": "a" "b"}', "invalid JSON: Expecting"),
        ("[" * 100_000, "invalid JSON"),
        ('{"image": /*' + "/*" * 100_000, "invalid JSON"),
        ('"' + '\\"' * 100_000, "invalid JSON"),
        (" " * 1024**2 + "{}", "the file is larger than 1048576 bytes"),
    ],
)
def test_unsupported_keys_are_refused(project: Path, text: str, message: str) -> None:
    source = describe(project, text)
    with pytest.raises(ConfigError) as caught:
        read_project(project)
    assert caught.value.message.startswith(f"{source}: ")
    assert message in caught.value.message


def test_link_out_of_the_project_is_refused(project: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (project / ".devcontainer" / "link").symlink_to(tmp_path / "home")
    text = '{"build": {"dockerfile": "Dockerfile.dev", "context": "link"}}'
    with raises("devcontainer.outside"):
        read_project(describe(project, text))


@pytest.mark.parametrize("name", ["Dockerfile", ".devcontainer/devcontainer.json", ".devcontainer"])
def test_discovered_file_may_not_be_a_link(project: Path, tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "devcontainer.json").write_text('{"image": "x", "token-1234": 1}')
    shutil.rmtree(project / ".devcontainer")
    (project / "Dockerfile").unlink()
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).symlink_to(home if name == ".devcontainer" else home / "devcontainer.json")
    with raises("devcontainer.outside") as caught:
        read_project(project)
    assert "token-1234" not in str(caught.value)


def test_linked_lock_files_are_not_read(project: Path) -> None:
    """A read of `/proc/kmsg` by root never ends, and a build does not see linked files."""
    before = read_project(project).digest
    (project / "uv.lock").symlink_to("/proc/kmsg")
    (project / "go.sum").symlink_to("/proc/kcore")
    (project / "Cargo.lock").symlink_to("/etc/hostname")
    assert read_project(project).digest == before


def test_dockerignore_may_not_be_a_link(project: Path, tmp_path: Path) -> None:
    """With a Dockerfile from elsewhere, the list's lines are copied into the build."""
    (tmp_path / "key").write_text("token-1234")
    listed = project / ".dockerignore"
    listed.symlink_to(tmp_path / "key")
    for dockerfile in (project / "Dockerfile", tmp_path / "Dockerfile"):
        dockerfile.write_text("FROM scratch\n")
        with (
            raises("build.file-unreadable", "is a link"),
            _archive(ImageBuild(context=project, dockerfile=str(dockerfile), tag="x")),
        ):
            pass
    listed.unlink()
    os.mkfifo(listed)
    with (
        raises("build.file-unreadable", "not a regular file"),
        _archive(ImageBuild(context=project, dockerfile=str(project / "Dockerfile"), tag="x")),
    ):
        pass
    listed.unlink()
    listed.write_text("#" * (1024**2 + 1))
    with (
        raises("build.file-unreadable", "1024 KiB"),
        _archive(ImageBuild(context=project, dockerfile=str(project / "Dockerfile"), tag="x")),
    ):
        pass


def test_missing_build_file_is_an_error(tmp_path: Path) -> None:
    with raises("devcontainer.missing"):
        read_project(tmp_path)
    with raises("devcontainer.missing"):
        read_project(tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "args", "target"),
    [
        ('{"dockerFile": "../Dockerfile", "context": ".."}', {}, None),
        ('{"dockerFile": "../Dockerfile", "build": {"target": "dev"}}', {}, "dev"),
        ('\ufeff{"build": {"dockerfile": "../Dockerfile"}}', {}, None),
        (
            '{"build": {"dockerfile": "../Dockerfile", "args": {"A": 3, "B": 1.5, "C": true}}}',
            {"A": "3", "B": "1.5", "C": "true"},
            None,
        ),
    ],
)
def test_forms_of_older_and_other_editors_are_read(
    tmp_path: Path, text: str, args: dict[str, str], target: str | None
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM debian\n")
    (tmp_path / ".devcontainer").mkdir()
    (tmp_path / ".devcontainer" / "devcontainer.json").write_text(text)
    found = read_project(tmp_path)
    assert (found.dockerfile, found.args, found.target) == (tmp_path / "Dockerfile", args, target)


def test_the_only_named_dev_container_is_found(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM debian\n")
    for name in ("go", "rust"):
        folder = tmp_path / ".devcontainer" / name
        folder.mkdir(parents=True)
        (folder / "devcontainer.json").write_text(f'{{"image": "{name}"}}')
        if name == "go":
            assert read_project(tmp_path).image == "go"
    with raises("devcontainer.several"):
        read_project(tmp_path)
    assert read_project(tmp_path / ".devcontainer" / "rust" / "devcontainer.json").image == "rust"
