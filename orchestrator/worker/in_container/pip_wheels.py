"""Collect wheels from pip's cache, so that pip can install them without a package index.

Runs alone in a container, after `setup`, with the directories of the cache and of the wheels as
arguments; it imports only the standard library.
"""

import email
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

_SAFE = re.compile(r"[A-Za-z0-9_.!+-]+")


def main() -> None:
    """Copy the wheels between the directories given on the command line."""
    cache, wheels = (Path(argument) for argument in sys.argv[1:3])
    wheels.mkdir(exist_ok=True)
    for path, name in _found(cache):
        shutil.copyfile(path, wheels / name)
        sys.stdout.write(f"{name}\n")


def _found(cache: Path) -> Iterator[tuple[Path, str]]:
    for path in (cache / "wheels").rglob("*.whl"):  # built here from source
        yield path, path.name
    for path in (cache / "http-v2").rglob("*.body"):
        name = _wheel_name(path)
        if name is not None:
            yield path, name


def _wheel_name(path: Path) -> str | None:
    """Return a wheel's file name according to its metadata; None if the file is no wheel."""
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as file:
        inside = [name for name in file.namelist() if name.endswith(".dist-info/WHEEL")]
        if len(inside) != 1 or inside[0].count("/") != 1:
            return None
        wheel = email.message_from_bytes(file.read(inside[0]))
    project = inside[0].partition(".dist-info/")[0]
    tags = [tag.split("-") for tag in wheel.get_all("Tag", [])]
    if not tags or any(len(tag) != 3 for tag in tags):  # Python, ABI, platform
        return None
    # The tags `py2-none-any` and `py3-none-any` together are written `py2.py3-none-any`.
    parts = (".".join(dict.fromkeys(part)) for part in zip(*tags, strict=True))
    name = "-".join([project, *filter(None, [wheel["Build"]]), *parts])
    return f"{name}.whl" if _SAFE.fullmatch(name) else None


if __name__ == "__main__":
    main()
