"""Tests of archives of images: what is saved, and what may be loaded."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from orchestrator.base.errors import ConfigError, EngineError
from orchestrator.engine.images.archive import load_images, save_images
from orchestrator.engine.images.names import BASE_IMAGE, BROKER_IMAGE, worker_image
from tests.support.errors import raises

CONFIG = b'{"rootfs": {"diff_ids": []}}'
DIGEST = hashlib.sha256(CONFIG).hexdigest()


def packed(members: Mapping[str, bytes | None]) -> bytes:
    """Return an archive; None stands for a link out of the archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/hostname"
            else:
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content or b""))
    return out.getvalue()


def images(*names: str, config: str = f"{DIGEST}.json", content: bytes | None = CONFIG) -> bytes:
    manifest: list[dict[str, Any]] = [{"Config": config, "RepoTags": [*names], "Layers": []}]
    return packed({"manifest.json": json.dumps(manifest).encode(), config: content})


@dataclass
class Engine:
    """An engine that gives and takes archives."""

    given: bytes = b""
    taken: list[bytes] = field(default_factory=list)

    def save(self, images: Sequence[str]) -> Iterator[bytes]:  # noqa: ARG002
        yield self.given[:10]
        if not self.given:
            raise EngineError("it broke", key="engine.refusal")
        yield self.given[10:]

    def load(self, archive: IO[bytes]) -> None:
        self.taken.append(archive.read())


def file(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "images.tar"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("config", [f"{DIGEST}.json", f"blobs/sha256/{DIGEST}"])
def test_saved_images_are_loaded_as_they_are(tmp_path: Path, config: str) -> None:
    engine, path = Engine(images(BASE_IMAGE, config=config)), tmp_path / "new" / "images.tar"
    saved = save_images(engine, [BASE_IMAGE], path)
    assert [(image.name, image.digest) for image in saved] == [(BASE_IMAGE, f"sha256:{DIGEST}")]
    assert load_images(engine, path, digests=[saved[0].digest]) == saved
    assert engine.taken == [path.read_bytes()]


def test_a_file_is_never_replaced_and_a_failure_leaves_none(tmp_path: Path) -> None:
    path = file(tmp_path, b"mine")
    with pytest.raises(ConfigError, match="File exists"):
        save_images(Engine(images(BASE_IMAGE)), [BASE_IMAGE], path)
    assert path.read_bytes() == b"mine"
    with pytest.raises(EngineError, match="it broke"):
        save_images(Engine(), [BASE_IMAGE], tmp_path / "other.tar")
    assert not (tmp_path / "other.tar").exists()


FOREIGN = (
    "debian:latest", "orchestrator/base:other", "orchestrator/worker:a/b", "evil/worker:claude",
    "docker.io/orchestrator/base:latest", "orchestrator/worker", "orchestrator/broker",
)  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_an_image_with_a_foreign_name_is_refused(tmp_path: Path, name: str) -> None:
    engine = Engine()
    with raises("image.foreign"):
        load_images(engine, file(tmp_path, images(BASE_IMAGE, name)))
    with raises("image.foreign"):
        save_images(engine, [name], tmp_path / "new.tar")
    assert engine.taken == []
    assert not (tmp_path / "new.tar").exists()


def test_an_image_with_another_digest_is_refused(tmp_path: Path) -> None:
    engine, path = Engine(), file(tmp_path, images(worker_image("claude"), BROKER_IMAGE))
    with pytest.raises(ConfigError, match=DIGEST):
        load_images(engine, path, digests=["sha256:" + "0" * 64])
    with raises("digest.invalid"):
        load_images(engine, path, digests=["latest"])
    assert engine.taken == []


BROKEN = {
    "text": b"no archive",
    "empty": b"",
    "without a manifest": packed({"a": b""}),
    "manifest is a link": packed({"manifest.json": None}),
    "manifest is deep": packed({"manifest.json": b"[" * 100_000}),
    "manifest is an object": packed({"manifest.json": b'{"a": 1}'}),
    "no tags": packed({"manifest.json": b'[{"Config": "c", "RepoTags": null}]', "c": CONFIG}),
    "configuration is a link": images(BASE_IMAGE, content=None),
    "configuration was changed": images(BASE_IMAGE, content=CONFIG + b" "),
    "configuration is missing": packed({"manifest.json": b'[{"Config": "c", "RepoTags": []}]'}),
    "many members": packed({str(number): b"" for number in range(10_001)}),
}


@pytest.mark.parametrize("what", BROKEN)
def test_anything_else_is_refused_before_the_engine_reads_it(tmp_path: Path, what: str) -> None:
    engine = Engine()
    with pytest.raises(ConfigError):
        load_images(engine, file(tmp_path, BROKEN[what]))
    assert engine.taken == []


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_images(Engine(), tmp_path / "none.tar")
