"""Tests of the steps of a build, and of the estimate of its end."""

import io
from pathlib import Path

import pytest

from orchestrator.faces.cli.commands import image
from orchestrator.faces.cli.output.build_progress import BuildProgress


class Build:
    """A build that another program follows; each line comes some seconds after the one before."""

    def __init__(self, file: Path) -> None:
        self.now = 0.0
        self.progress = BuildProgress(file, clock=lambda: self.now)

    def says(self, *lines: str, after: float = 0.0) -> str:
        self.now += after
        for line in lines:
            self.progress.note(line)
        return self.progress.text()


def first_build(file: Path) -> None:
    build = Build(file)
    assert build.says("pulling debian") == ""
    assert build.says("Step 1/3 : FROM debian") == "step 1 of 3"
    assert build.says("Step 2/3 : RUN install", after=1) == "step 2 of 3"
    assert build.says("Step 3/3 : RUN check", after=120) == "step 3 of 3"
    build.says(after=70)
    build.progress.end()


def test_the_second_build_has_an_estimate(tmp_path: Path) -> None:
    file = tmp_path / "state" / "builds.json"
    first_build(file)
    build = Build(file)
    assert build.says("Step 1/3 : FROM debian") == "step 1 of 3, about 3 min left"
    assert build.says("Step 2/3 : RUN install") == "step 2 of 3, about 3 min left"
    assert (
        build.says(" ---> Using cache", "Step 3/3 : RUN check") == "step 3 of 3, about 1 min left"
    )
    assert build.says("checking", after=50) == "step 3 of 3, less than a minute left"
    assert build.says(after=500) == "step 3 of 3"
    build.progress.end()
    again = Build(file)
    again.says("Step 1/3 : FROM debian", "Step 2/3 : RUN install")
    assert again.progress._plan == {"1": 0.0, "2": 120.0, "3": 550.0}, "step 2 was in the cache"


def test_another_dockerfile_has_no_estimate(tmp_path: Path) -> None:
    first_build(tmp_path / "builds.json")
    build = Build(tmp_path / "builds.json")
    assert build.says("Step 1/4 : FROM debian") == "step 1 of 4"
    assert build.says("Step 1/3 : FROM debian").endswith("about 3 min left"), "the next image"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 3}', '{"a": {"1": "x"}}', "null"])
def test_broken_times_are_no_times(tmp_path: Path, text: str) -> None:
    file = tmp_path / "builds.json"
    file.write_text(text)
    assert Build(file).says("Step 1/3 : FROM debian") == "step 1 of 3"


def test_the_log_of_a_build_has_estimates_where_steps_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    first_build(tmp_path / "orchestrator" / "builds.json")
    with image.build_progress(quiet=False) as progress:
        for line in ("Step 1/3 : FROM debian", "running", "Step 2/3 : RUN install"):
            progress(line)
    assert capsys.readouterr().err.splitlines() == [
        "Step 1/3 : FROM debian (about 3 min left)", "running",
        "Step 2/3 : RUN install (about 3 min left)",
    ]  # fmt: skip
