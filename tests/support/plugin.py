"""Install packages with adapters into a directory on the path, as pip would."""

import tomllib
from collections.abc import Mapping
from pathlib import Path


def install(directory: Path, project: str, modules: Mapping[str, str]) -> None:
    """Write a package as pip would install it: its modules and its metadata.

    Args:
        directory: Directory on `sys.path`.
        project: Content of `pyproject.toml`.
        modules: File name to content.
    """
    about = tomllib.loads(project)["project"]
    name, version = about["name"], about["version"]
    info = directory / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    for file, text in modules.items():
        (directory / file).write_text(text)
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(head)
    lines = []
    for group, points in about["entry-points"].items():
        lines += [f"[{group}]", *(f"{point} = {value}" for point, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
