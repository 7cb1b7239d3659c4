"""Tests of the packs that runs share: a worker sees exactly what its base reaches."""

import json
import os
import random
import stat
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from orchestrator.base.errors import GitCommandError, RepositoryError
from orchestrator.repository.objects import object_packs, reached_objects, shared_packs
from orchestrator.repository.objects.object_packs import pack_commit, put_pack
from orchestrator.repository.objects.shared_packs import pack_base, remove_packs
from orchestrator.repository.repository import Repository
from tests.support.errors import raises
from tests.support.repository import git


class Runs:
    """Runs in one repository, each with an object directory of its own."""

    def __init__(self, repo: Path, root: Path) -> None:
        self.repo = repo
        self.root = root
        root.mkdir()
        self.places: dict[Path, set[str]] = {}
        self._numbers = count()
        self.packs = repo / ".git" / "orchestrator" / "packs"

    def begin(self, revision: str = "HEAD") -> Path:
        """Create the objects of a run, and check them; return their directory."""
        commit = git(self.repo, "rev-parse", f"{revision}^{{commit}}")
        place = self.root / f"run-{next(self._numbers)}"
        pack_base(Repository(self.repo), commit, place)
        self.places[place] = reached(self.repo, commit)
        self.check(place)
        return place

    def check(self, place: Path) -> None:
        """Check that a run sees undamaged objects, and exactly those that its base reaches."""
        assert held(place) == self.places[place]
        for index in (place / "pack").glob("*.idx"):
            git(self.repo, "verify-pack", str(index))

    def commit(self, name: str, text: str = "") -> str:
        (self.repo / name).write_text(text or f"{name} {random.random()}\n")
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-qm", name)
        return git(self.repo, "rev-parse", "HEAD")

    def bases(self) -> set[str]:
        return {path.name for path in self.packs.iterdir() if path.name != "lock"}


def reached(repo: Path, commit: str) -> set[str]:
    return set(git(repo, "rev-list", "--objects", "--no-object-names", commit).split())


def held(place: Path) -> set[str]:
    """Return all objects that a worker can read in an object directory, reachable or not."""
    worker = place.parent / f"{place.name}-worker"
    (index, *_) = (place / "pack").glob("*.idx")
    kind = "sha1" if len(index.stem) == len("pack-") + 40 else "sha256"
    git(place.parent, "init", "-q", "--bare", f"--object-format={kind}", str(worker))
    (worker / "objects" / "info" / "alternates").write_text(f"{place}\n")
    listed = git(worker, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    return set(listed.split())


@pytest.fixture
def runs(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    # The short histories of these tests are listed in pieces as well.
    monkeypatch.setattr(reached_objects, "_PIECE", 2)
    return Runs(repo, tmp_path / "runs")


def packing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the kind of each packing: `all`, `since`."""
    found: list[str] = []
    for kind, name in (("all", "pack_commit"), ("since", "pack_since")):
        inner = getattr(shared_packs, name)

        def outer(*arguments: object, kind: str = kind, inner=inner, **options: object) -> object:  # type: ignore[no-untyped-def]
            found.append(kind)
            return inner(*arguments, **options)

        monkeypatch.setattr(shared_packs, name, outer)
    return found


def test_later_runs_pack_only_what_is_new(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = packing(monkeypatch)
    runs.begin()
    runs.begin()
    runs.commit("one")
    runs.begin()
    runs.commit("two")
    runs.commit("three")
    runs.begin()
    assert kinds == ["all", "since", "since"]
    assert runs.bases() == {git(runs.repo, "rev-parse", "HEAD")}


def test_older_base_that_was_used_needs_no_packing(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.begin()
    for name in ("one", "two", "three"):
        runs.commit(name)
        runs.begin()
    kinds = packing(monkeypatch)
    git(runs.repo, "reset", "-q", "--hard", "HEAD~2")
    runs.begin()
    assert kinds == []
    runs.commit("other")
    runs.begin()
    assert kinds == ["since"]


def test_commit_that_is_no_descendant_uses_no_packs_of_another_base(runs: Runs) -> None:
    runs.commit("secret")
    runs.begin()
    git(runs.repo, "checkout", "-q", "--orphan", "other")
    runs.commit("other")
    runs.begin()
    git(runs.repo, "checkout", "-q", "main~1")
    runs.begin()
    runs.commit("beside")
    runs.begin()


def test_nothing_but_the_base_is_seen_after_any_change(runs: Runs) -> None:
    dice = random.Random(11)
    repo = runs.repo
    git(repo, "tag", "-am", "annotated", "first")
    runs.begin()
    secret = runs.commit("deleted secret")
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    (repo / "a.txt").write_text("stashed\n")
    git(repo, "stash", "-q")
    runs.begin()
    changes: list[Callable[[], object]] = [
        lambda: runs.commit(f"file-{dice.randrange(5)}"),
        lambda: runs.commit(f"file-{dice.randrange(5)}"),
        lambda: git(repo, "checkout", "-q", "-B", f"side-{dice.randrange(2)}", "HEAD~1"),
        lambda: git(repo, "checkout", "-q", "main"),
        lambda: git(repo, "reset", "-q", "--hard", "HEAD~1"),
        lambda: git(repo, "commit", "-q", "--amend", "--allow-empty", "-m", "amended"),
        lambda: git(repo, "merge", "-q", "-m", "merge", "-s", "ours", "main"),
        lambda: git(repo, "repack", "-adq"),
        lambda: git(repo, "repack", "-dq"),
        lambda: git(repo, "gc", "-q", "--prune=now"),
    ]
    git(repo, "checkout", "-qb", "work")
    for _ in range(20):
        try:
            dice.choice(changes)()
        except subprocess.CalledProcessError:
            continue  # for example, a reset of the first commit
        runs.begin()
    for place in runs.places:
        runs.check(place)
        assert secret not in held(place)


def test_two_runs_of_different_bases_begin_at_once(runs: Runs) -> None:
    git(runs.repo, "checkout", "-qb", "side")
    runs.commit("of the side")
    git(runs.repo, "checkout", "-q", "main")
    for round_ in range(3):
        runs.commit(f"main {round_}")
        each = [
            threading.Thread(target=runs.begin, args=[base], name=base)
            for base in ("main", "side", "main~1", "main")
        ]
        for thread in each:
            thread.start()
        for thread in each:
            thread.join()
    assert len(runs.places) == 12
    runs.begin("side")


class Killed(BaseException):
    """Stands for the death of the process: nothing that would follow is done."""


@pytest.mark.parametrize("step", range(1, 9))
def test_nothing_is_trusted_that_a_killed_run_left(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    runs.begin()
    runs.commit("one")
    steps = 0

    def dying(inner: Callable[..., object]) -> Callable[..., object]:
        def outer(*arguments: object, **options: object) -> object:
            nonlocal steps
            steps += 1
            if steps == step:
                raise Killed
            return inner(*arguments, **options)

        return outer

    with monkeypatch.context() as patch:
        for owner, name in (
            (shared_packs, "put_file"),
            (shared_packs, "write_atomically"),
            (shared_packs, "remove_tree"),
            (Path, "rename"),
        ):
            patch.setattr(owner, name, dying(getattr(owner, name)))
        try:
            runs.begin()
        except Killed:
            # The run that died left an incomplete directory; a resumed run removes it.
            runs.root = runs.root / "resumed"
            runs.root.mkdir()
    assert steps >= step
    runs.begin()
    runs.commit("two")
    runs.begin()
    assert len(runs.bases()) == 1


def test_largest_pack_of_the_repository_is_linked_if_it_holds_nothing_else(runs: Runs) -> None:
    git(runs.repo, "repack", "-adq")
    (pack,) = (runs.repo / ".git" / "objects" / "pack").glob("*.pack")
    runs.commit("loose")
    place = runs.begin()
    assert (place / "pack" / pack.name).stat().st_ino == pack.stat().st_ino
    # The user's own repacking changes no run.
    git(runs.repo, "repack", "-adq")
    runs.check(place)
    runs.begin()


def listed(repo: Path, commit: str) -> tuple[list[str], int]:
    """Return the ids of a list of reached objects, and the number of its parts."""
    repository = Repository(repo)
    with reached_objects.list_reached_objects(
        repository.git, repository.common_dir, commit, repository.common_dir
    ) as parts:
        return [line.split()[0].decode() for part in parts for line in part.lines()], len(parts)


@pytest.mark.parametrize(("size", "equal"), [(1, 1), (1, 4), (2, 8), (3, 2), (5, 8), (100, 8)])
def test_pieces_of_a_history_are_together_what_its_commit_reaches(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, size: int, equal: int
) -> None:
    repo = runs.repo
    for round_ in range(3):
        git(repo, "checkout", "-qb", f"side-{round_}", f"HEAD~{min(round_, 1)}")
        runs.commit(f"side {round_}")
        git(repo, "checkout", "-q", "main")
        runs.commit(f"main {round_}")
        git(repo, "merge", "-q", "-m", "merge", f"side-{round_}")
    git(repo, "checkout", "-q", "--orphan", "root")
    runs.commit("another root")
    git(repo, "checkout", "-q", "main")
    git(repo, "merge", "-q", "-m", "merge", "--allow-unrelated-histories", "root")
    git(repo, "merge", "-q", "-m", "octopus", "-s", "ours", "side-0", "side-1", "root~0")
    secret = runs.commit("secret")
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    monkeypatch.setattr(reached_objects, "_PIECE", size)
    monkeypatch.setattr(reached_objects, "_EQUAL", equal)
    for commit in git(repo, "rev-list", "HEAD").split():
        ids, pieces = listed(repo, commit)
        chain = int(git(repo, "rev-list", "--first-parent", "--count", commit))
        assert set(ids) == reached(repo, commit)
        assert secret not in ids
        assert pieces == 1 if chain <= size else 1 < pieces <= -(-chain // size)
    git(repo, "repack", "-adq", "--write-bitmap-index")
    assert listed(repo, git(repo, "rev-parse", "HEAD"))[1] == 1


def test_objects_that_are_listed_twice_hide_no_other_objects_of_a_pack(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo, text = runs.repo, "comes back\n"
    runs.commit("file", text)
    for number in range(3):
        runs.commit("file", f"{number}\n")
    head = runs.commit("file", text)
    ids, pieces = listed(repo, head)
    twice = len(ids) - len(set(ids))
    assert pieces > 1
    assert twice > 1
    git(repo, "repack", "-adq")
    (pack,) = (repo / ".git" / "objects" / "pack").glob("*.pack")
    assert (runs.begin() / "pack" / pack.name).samefile(pack)
    # The ids are compared in several rounds.
    monkeypatch.setattr(reached_objects, "_MOST_COMPARED", 3)
    remove_packs(runs.packs.parent)
    assert (runs.begin() / "pack" / pack.name).samefile(pack)
    for foreign in range(1, twice + 1):
        (repo / "secret").write_text(f"secret {foreign}\n")
        git(repo, "hash-object", "-w", "secret")
        (repo / "secret").unlink()
        git(repo, "repack", "-adq", "--keep-unreachable")
        remove_packs(runs.packs.parent)
        runs.begin()


@pytest.mark.parametrize("foreign", ["branch", "tag", "dangling", "reflog"])
def test_pack_with_other_objects_is_not_linked(runs: Runs, foreign: str) -> None:
    repo = runs.repo
    # The pack has more than half of the reached objects.
    for number in range(4):
        runs.commit(f"packed {number}")
    if foreign == "tag":
        git(repo, "tag", "-am", "annotated", "first")
    if foreign == "dangling":
        git(repo, "repack", "-adq")
        (repo / "secret").write_text("secret\n")
        git(repo, "hash-object", "-w", "secret")
        (repo / "secret").unlink()
    if foreign in ("branch", "reflog"):
        runs.commit("secret")
        git(repo, "branch", "secret") if foreign == "branch" else None
        git(repo, "reset", "-q", "--hard", "HEAD~1")
    git(repo, "repack", "-adq", "--keep-unreachable")
    (pack,) = (repo / ".git" / "objects" / "pack").glob("*.pack")
    # As many objects are reached as the pack has, or more.
    for number in range(4):
        runs.commit(f"loose {number}")
    place = runs.begin()
    assert not any(path.samefile(pack) for path in (place / "pack").iterdir())


def test_damaged_pack_of_the_repository_is_not_linked(runs: Runs) -> None:
    git(runs.repo, "repack", "-adq")
    (pack,) = (runs.repo / ".git" / "objects" / "pack").glob("*.pack")
    index = pack.with_suffix(".idx")
    pack.chmod(0o644)
    content = bytearray(pack.read_bytes())
    content[-25] ^= 1
    pack.write_bytes(content)
    assert not put_pack(pack, runs.root, checksum="sha1")
    assert list(runs.root.iterdir()) == []
    assert index.exists()


def test_mode_of_a_linked_pack_is_kept(runs: Runs) -> None:
    git(runs.repo, "repack", "-adq")
    (pack,) = (runs.repo / ".git" / "objects" / "pack").glob("*.pack")
    pack.chmod(0o640)
    place = runs.begin()
    assert stat.S_IMODE(pack.stat().st_mode) == 0o640
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (place / "pack").iterdir()}
    assert modes == {0o444}
    pack.chmod(0o644)
    remove_packs(runs.packs.parent)
    runs.begin()
    assert stat.S_IMODE(pack.stat().st_mode) == 0o644
    # A pack that the user closes later is copied for the next run.
    pack.chmod(0o600)
    runs.begin()
    assert stat.S_IMODE(pack.stat().st_mode) == 0o600


def test_few_bases_and_layers_are_kept(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_packs, "_MOST_LAYERS", 3)
    # A large first commit, so that the layers after it are small.
    (runs.repo / "large").write_bytes(random.Random(1).randbytes(200_000))
    runs.commit("first")
    place = runs.begin()
    for number in range(5):
        runs.commit(f"file-{number}")
        place = runs.begin()
    assert len(list((place / "pack").glob("*.pack"))) <= 3
    for number in range(4):
        git(runs.repo, "checkout", "-q", "--orphan", f"other-{number}")
        runs.commit(f"other-{number}")
        runs.begin()
    assert len(runs.bases()) == 3
    for place in runs.places:
        runs.check(place)


def test_layers_that_outgrow_the_first_are_packed_anew(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_packs, "_MOST_LAYERS", 2)
    kinds = packing(monkeypatch)
    for number in range(3):
        (runs.repo / f"large-{number}").write_bytes(
            random.Random(number).randbytes((number + 1) * 50_000)
        )
        runs.commit("large")
        runs.begin()
    assert kinds == ["all", "since", "all"]


def edited(runs: Runs, change: Callable[[dict], object]) -> None:  # type: ignore[type-arg]
    (root,) = (runs.packs / name for name in runs.bases())
    manifest = json.loads((root / "manifest.json").read_text())
    change(manifest)
    (root / "manifest.json").write_text(json.dumps(manifest))


def add_file(manifest: dict, *, name: str, size: int) -> None:  # type: ignore[type-arg]
    manifest["layers"][0]["files"][name] = size


def outside(runs: Runs) -> tuple[Path, str]:
    """Write packs with a secret outside of the kept ones; return one of them and its name there."""
    secret = runs.commit("secret")
    elsewhere = runs.repo.parent / "elsewhere"
    git_dir = runs.repo / ".git"
    pack_commit(Repository(runs.repo).git, git_dir, secret, elsewhere, history="shallow")
    git(runs.repo, "reset", "-q", "--hard", "HEAD~1")
    (pack,) = (elsewhere / "pack").glob("*.pack")
    return pack, os.path.relpath(pack, runs.packs / "base")


def test_manifest_cannot_name_files_elsewhere(runs: Runs) -> None:
    pack, name = outside(runs)
    runs.begin()
    size = pack.stat().st_size
    edited(runs, partial(add_file, name=name, size=size))
    place = runs.begin()
    assert not any(path.samefile(pack) for path in place.rglob("*"))
    edited(runs, partial(add_file, name="../planted", size=1))
    (runs.packs / "planted").write_text("x")
    assert not (runs.begin() / "planted").exists()


def test_links_among_the_packs_are_not_followed(runs: Runs) -> None:
    pack, _ = outside(runs)
    runs.begin()
    (root,) = (runs.packs / name for name in runs.bases())
    for suffix in (".pack", ".idx", ".rev"):
        source = pack.with_suffix(".idx" if suffix == ".rev" else suffix)
        (root / pack.name).with_suffix(suffix).symlink_to(source)
        name, size = pack.with_suffix(suffix).name, source.stat().st_size
        edited(runs, partial(add_file, name=name, size=size))
        place = runs.begin()
        assert not any(path.is_symlink() for path in place.rglob("*"))
        (root,) = (runs.packs / name for name in runs.bases())


def test_link_in_place_of_a_base_is_not_used(runs: Runs) -> None:
    runs.begin()
    (root,) = (runs.packs / name for name in runs.bases())
    root.rename(runs.root / "moved")
    root.symlink_to(runs.root / "moved")
    kept = set((runs.root / "moved").iterdir())
    runs.begin()
    assert set((runs.root / "moved").iterdir()) == kept
    assert not root.is_symlink()


_DAMAGE = ("no manifest", "no files", "other commit", "no index", "cut")
_DAMAGE_OF_PACKS = ("shorter pack", "hollow pack", "other pack")


@pytest.mark.parametrize("damage", [*_DAMAGE, *_DAMAGE_OF_PACKS])
def test_packs_that_differ_from_their_manifest_are_not_used(runs: Runs, damage: str) -> None:
    runs.commit("more")
    runs.begin()
    (root,) = (runs.packs / name for name in runs.bases())
    (pack,) = root.glob("*.pack")
    pack.chmod(0o644)
    secret = "f" * 40
    if damage == "no manifest":
        (root / "manifest.json").unlink()
    elif damage == "no files":
        edited(runs, lambda manifest: manifest["layers"][0].update(files={}))
    elif damage == "other commit":
        # As if another commit's packs were complete for the base.
        root.rename(root.with_name(git(runs.repo, "rev-parse", "HEAD~1")))
    elif damage == "shorter pack":
        os.truncate(pack, pack.stat().st_size - 1)
    elif damage == "hollow pack":
        pack.write_bytes(pack.read_bytes()[-20:])
    elif damage == "other pack":
        pack.write_bytes(bytes(pack.stat().st_size))
    elif damage == "no index":
        pack.with_suffix(".idx").unlink()
    else:
        edited(runs, lambda manifest: manifest.update(cut=[secret]))
    # The run that is in progress shares these files; damage is for the next ones.
    runs.places.clear()
    runs.root = runs.root / "later"
    runs.root.mkdir()
    runs.begin()
    runs.begin("HEAD~1")


def test_history_that_was_cut_elsewhere_is_packed_anew(runs: Runs, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        runs.commit(name)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=2", f"file://{runs.repo}", str(clone))
    git(clone, "config", "user.name", "u")
    git(clone, "config", "user.email", "u@example.org")
    of_clone = Runs(clone, tmp_path / "of-clone")
    of_clone.begin()
    of_clone.commit("four")
    of_clone.begin()
    git(clone, "fetch", "-q", "--unshallow")
    of_clone.begin()
    assert len(of_clone.places) == 3


def test_grafts_and_replacements_add_nothing(runs: Runs) -> None:
    head = git(runs.repo, "rev-parse", "HEAD")
    git(runs.repo, "checkout", "-q", "--orphan", "hidden")
    secret = runs.commit("secret")
    git(runs.repo, "checkout", "-q", "main")
    (runs.repo / ".git" / "info" / "grafts").write_text(f"{head} {secret}\n")
    pack_base(Repository(runs.repo), head, runs.root / "o")
    assert secret not in held(runs.root / "o")
    (runs.repo / ".git" / "info" / "grafts").unlink()
    git(runs.repo, "replace", "--graft", head, secret)
    pack_base(Repository(runs.repo), head, runs.root / "p")
    assert secret not in held(runs.root / "p")


def test_repository_with_sha256(tmp_path: Path, repo: Path) -> None:  # noqa: ARG001  # home
    other = tmp_path / "sha256"
    git(tmp_path, "init", "-q", "--object-format=sha256", str(other))
    git(other, "config", "user.name", "u")
    git(other, "config", "user.email", "u@example.org")
    of_other = Runs(other, tmp_path / "runs")
    of_other.commit("one")
    git(other, "repack", "-adq")
    of_other.begin()
    of_other.commit("two")
    of_other.begin()
    assert len(of_other.bases()) == 1


def test_directory_that_others_may_enter_is_refused(runs: Runs) -> None:
    runs.begin()
    runs.packs.chmod(0o755)
    with raises("directory.not-private"):
        runs.begin()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_in_the_place_of_the_directory_is_refused(runs: Runs, kind: str) -> None:
    runs.packs.parent.mkdir()
    (runs.root / "theirs").mkdir(mode=0o700)
    if kind == "file":
        runs.packs.write_text("")
    else:
        runs.packs.symlink_to(runs.root / "theirs")
    with raises("directory.not-private"):
        runs.begin()
    assert list((runs.root / "theirs").iterdir()) == []


def test_link_in_place_of_the_lock_is_not_followed(runs: Runs) -> None:
    runs.begin()
    target = runs.root / "target"
    target.write_text("kept")
    (runs.packs / "lock").unlink()
    (runs.packs / "lock").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        runs.begin()
    assert target.read_text() == "kept"


def test_removal_frees_what_only_the_kept_packs_use(runs: Runs) -> None:
    place = runs.begin()
    of_manifest = remove_packs(runs.packs.parent)
    runs.check(place)
    runs.begin()
    for file in (place / "pack").iterdir():
        file.unlink()
    for place in runs.root.glob("run-*"):
        for file in (place / "pack").glob("*"):
            file.unlink()
    assert remove_packs(runs.packs.parent) >= of_manifest + 8192
    assert runs.bases() == set()


def lose(repo: Path, revision: str) -> None:
    name = git(repo, "rev-parse", revision)
    (repo / ".git" / "objects" / name[:2] / name[2:]).unlink()


@pytest.mark.parametrize("lost", ["HEAD~1:gone", "HEAD~1^{tree}", "HEAD~1"])
def test_commit_whose_past_is_incomplete_is_packed_alone(runs: Runs, lost: str) -> None:
    runs.commit("gone")
    git(runs.repo, "rm", "-q", "gone")
    head = runs.commit("later")
    lose(runs.repo, lost)
    place = runs.root / "o"
    cut = pack_base(Repository(runs.repo), head, place)
    assert cut == {head}
    tree = git(runs.repo, "ls-tree", "-rt", "--format=%(objectname)", head).split()
    assert held(place) == {head, git(runs.repo, "rev-parse", f"{head}^{{tree}}"), *tree}
    assert not runs.packs.exists()


def test_commit_that_is_incomplete_itself_is_an_error(runs: Runs) -> None:
    lose(runs.repo, "HEAD:a.txt")
    head = git(runs.repo, "rev-parse", "HEAD")
    with pytest.raises(RepositoryError):
        pack_base(Repository(runs.repo), head, runs.root / "o")


def test_full_disk_is_not_taken_for_an_incomplete_past(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "fatal: sha1 file '<stdout>' write error: No space left on device"

    def full(*_: object) -> None:
        raise GitCommandError(("pack-objects",), 128, said)

    monkeypatch.setattr(object_packs, "_pack_history", full)
    head = git(runs.repo, "rev-parse", "HEAD")
    with pytest.raises(GitCommandError, match="No space left"):
        pack_base(Repository(runs.repo), head, runs.root / "o")
