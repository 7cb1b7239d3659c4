"""Tests of conflicts that an agent resolves: which of its answers are accepted."""

import pytest

from orchestrator.review.landing.conflict import Proposal
from orchestrator.review.landing.merged import Merged
from orchestrator.review.landing.queue import Answer, CommitTest
from orchestrator.review.landing.resolution import Resolver
from tests.support.errors import raises
from tests.support.landing import branch, merge
from tests.support.merges import Content, World
from tests.support.repository import git
from tests.support.resolving import Answer as Reply
from tests.support.resolving import ScriptedAgent, with_line

BOTH = with_line("5", "five", "cinq")
OURS = with_line("5", "five")
THEIRS = with_line("5", "cinq")


def resolve(
    world: World, *answers: Reply, findings: str = "", allowed: tuple[str, ...] = (), **wish: object
) -> tuple[Merged, ScriptedAgent]:
    """Merge two branches that changed the same line, with an agent for the conflict."""
    agent = ScriptedAgent(world, *answers, findings=findings)
    one = branch(world, 1, {"numbers": OURS, "one": "1\n"})
    two = branch(world, 2, {"numbers": THEIRS, "two": "2\n"})
    resolver = Resolver(agent=agent, allowed=allowed)
    return merge(world, one, two, on_conflict="agent", resolver=resolver, **wish), agent


def test_resolution_lands_with_both_real_parents(world: World) -> None:
    merged, agent = resolve(world, {"numbers": BOTH})
    assert (merged.landed, merged.left) == ((1, 2), ())
    assert [(one.worker_id, one.run_id, one.files) for one in merged.resolved] == [
        (2, "run-1", ("numbers",))
    ]
    assert git(world.repo, "rev-parse", "main") == merged.after
    assert git(world.repo, "show", "main:numbers") == BOTH.strip()
    first, second = git(world.repo, "log", "-1", "--format=%P", "main").split()
    (conflict, _, _), = agent.asked  # fmt: skip
    assert (first, second) == (conflict.ours, git(world.repo, "rev-parse", "architect/parallel-2"))
    assert "Orchestrator-Resolved-In: run-1" in git(world.repo, "log", "-1", "--format=%B", "main")
    assert git(world.repo, "status", "--porcelain") == ""
    assert (world.repo / "one").exists()
    assert (world.repo / "two").exists()


def test_prompt_of_the_agent_describes_both_sides(world: World) -> None:
    _, agent = resolve(world, {"numbers": BOTH})
    conflict, said, _ = agent.asked[0]
    assert conflict.paths == ("numbers",)
    assert [one.worker_id for one in conflict.others] == [1]
    for part in ("- numbers\n", "task 1", "task 2", "+five", "+cinq"):
        assert part in said
    marked = git(world.repo, "show", f"{conflict.commit}:numbers")
    assert f"<<<<<<< {conflict.ours}" in marked
    assert git(world.repo, "for-each-ref", "--contains", conflict.commit) == ""


REFUSED: dict[str, tuple[dict[str, Content], str]] = {
    "nothing": ({}, "conflict markers are left in numbers"),
    "markers": (
        {"numbers": BOTH.replace("five\n", "<<<<<<< ours\nfive\n=======\n")},
        "conflict markers are left in numbers",
    ),
    "one marker": ({"numbers": BOTH + "=======\n"}, "conflict markers are left in numbers"),
    "another file": (
        {"numbers": BOTH, "a.txt": "x\n"},
        "files without a conflict were changed: a.txt",
    ),
    "a new file": ({"numbers": BOTH, "new": "x\n"}, "files without a conflict were changed: new"),
    "a deleted file": (
        {"numbers": BOTH, "a.txt": None},
        "files without a conflict were changed: a.txt",
    ),
    "below the file": (
        {"numbers": None, "numbers/x": BOTH},
        "files without a conflict were changed: numbers/x",
    ),
    "a link": ({"numbers": ("120000", "one")}, "files were replaced by links"),
    "one side": ({"numbers": OURS}, "all additions of one side are gone"),
    "other side": ({"numbers": THEIRS}, "all additions of one side are gone"),
    "neither side": ({"numbers": with_line("5", "six")}, "all additions of one side are gone"),
    "no file": ({"numbers": None}, "all additions of one side are gone"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.variants("markers", "another file", "a link", "one side")
def test_refused_resolution_leaves_everything_as_it_was(world: World, case: str) -> None:
    files, said = REFUSED[case]
    (world.repo / "untracked").write_text("mine\n")
    merged, agent = resolve(world, files, files)
    (left,) = merged.left
    assert (merged.landed, merged.resolved) == ((1,), ())
    assert (left.worker_id, left.reason, left.files) == (2, "conflict", ("numbers",))
    assert len(left.refused) == 2
    assert said in left.refused[0]
    assert said in agent.asked[1][1], "the second attempt is told why the first was refused"
    assert agent.forgotten == [agent.asked[0][0]]
    assert git(world.repo, "show", "main:numbers") == OURS.strip()
    assert git(world.repo, "status", "--porcelain") == "?? untracked"


def test_second_attempt_can_succeed(world: World) -> None:
    merged, agent = resolve(world, {"numbers": OURS}, {"numbers": BOTH})
    assert (merged.landed, merged.resolved[0].run_id) == ((1, 2), "run-2")
    assert agent.forgotten == []


@pytest.mark.parametrize(
    ("findings", "accepted"),
    [
        ("numbers: the word is French in the other files too", True),
        ("numbers", False),
        ("the other side was wrong", False),
        ("", False),
    ],
)
def test_one_side_may_be_dropped_with_a_reason(world: World, findings: str, accepted: bool) -> None:
    merged, _ = resolve(world, {"numbers": THEIRS}, {"numbers": THEIRS}, findings=findings)
    assert merged.landed == ((1, 2) if accepted else (1,))


def test_more_paths_can_be_allowed(world: World) -> None:
    files: Reply = {"numbers": BOTH, "docs/new.md": "x\n"}
    merged, _ = resolve(world, files, allowed=("docs/",))
    assert merged.landed == (1, 2)


def test_lines_like_markers_that_a_side_has_are_kept(world: World) -> None:
    title = "Title\n=======\n"
    agent = ScriptedAgent(world, {"doc.rst": f"{title}five\ncinq\n"})
    one = branch(world, 1, {"doc.rst": f"{title}five\n"})
    two = branch(world, 2, {"doc.rst": f"{title}cinq\n"})
    merged = merge(world, one, two, on_conflict="agent", resolver=Resolver(agent=agent))
    assert merged.landed == (1, 2)


def test_deleted_file_may_stay_deleted(world: World) -> None:
    agent = ScriptedAgent(world, {"a.txt": None})
    one, two = branch(world, 1, {"a.txt": None}), branch(world, 2, {"a.txt": "x\n"})
    merged = merge(world, one, two, on_conflict="agent", resolver=Resolver(agent=agent))
    assert merged.landed == (1, 2)
    assert agent.asked[0][0].kind == "delete"


def test_file_and_directory_are_not_given_to_an_agent(world: World) -> None:
    agent = ScriptedAgent(world)
    one, two = branch(world, 1, {"x": "1\n"}), branch(world, 2, {"x/y": "1\n"})
    merged = merge(world, one, two, on_conflict="agent", resolver=Resolver(agent=agent))
    assert (merged.landed, agent.asked) == ((1,), [])
    assert "a conflict of this kind or size (mode, files: 1)" in merged.left[0].refused[0]


def test_agent_that_failed_is_asked_again_but_not_after_a_failure_of_the_machine(
    world: World,
) -> None:
    failed = Proposal(run_id="r", problem="the agent did not succeed: timeout")
    broken = Proposal(run_id="r", problem="the engine is gone", is_blameless=True)
    merged, agent = resolve(world, failed, {"numbers": BOTH})
    assert (merged.landed, len(agent.asked)) == ((1, 2), 2)
    git(world.repo, "reset", "-q", "--hard", world.base)
    merged, agent = resolve(world, broken)
    assert (merged.landed, len(agent.asked)) == ((1,), 1)
    assert "the engine is gone" in merged.left[0].refused[0]


@pytest.mark.parametrize("test", [None, lambda _: "pass"], ids=["merge", "queue"])
def test_conflicts_are_resolved_last(world: World, test: CommitTest | None) -> None:
    agent = ScriptedAgent(world, {"numbers": BOTH})
    one = branch(world, 1, {"numbers": OURS})
    two = branch(world, 2, {"numbers": THEIRS})
    three = branch(world, 3, {"three": "3\n"})
    resolver = Resolver(agent=agent)
    merged = merge(world, one, two, three, on_conflict="agent", resolver=resolver, test=test)
    assert merged.landed == (1, 3, 2)


@pytest.mark.parametrize("form", ["squash", "apply"])
def test_other_forms_get_the_resolution_too(world: World, form: str) -> None:
    merged, _ = resolve(world, {"numbers": BOTH}, form=form)
    assert merged.landed == (1, 2)
    assert (world.repo / "numbers").read_text() == BOTH


@pytest.mark.parametrize("passes", [True, False])
def test_resolution_is_tested_in_the_queue(world: World, passes: bool) -> None:
    tested = []

    def test(commit: str) -> Answer:
        tested.append(commit)
        return (
            "pass"
            if passes or "cinq" not in git(world.repo, "show", f"{commit}:numbers")
            else "fail"
        )

    merged, _ = resolve(world, {"numbers": BOTH}, test=test)
    assert merged.after == git(world.repo, "rev-parse", "main")
    if passes:
        assert (merged.landed, tested[-1]) == ((1, 2), merged.after)
    else:
        assert (merged.landed, merged.left[0].reason) == ((1,), "checks_failed")
        assert merged.left[0].passes == merged.after


def test_resolution_that_breaks_a_rule_for_commits_is_left_out(world: World) -> None:
    """An allowed path is no way around the rules for workers' commits."""
    merged, _ = resolve(world, {"numbers": BOTH, "A.TXT": "x\n"}, allowed=("A.TXT",))
    assert (merged.landed, merged.left[0].reason) == ((1,), "refused")


def test_dirty_target_is_refused_and_nothing_moves(world: World) -> None:
    (world.repo / "numbers").write_text("edited\n")
    with raises("checkout.blocked"):
        resolve(world, {"numbers": BOTH})
    assert git(world.repo, "rev-parse", "main") == world.base
    assert (world.repo / "numbers").read_text() == "edited\n"
    assert git(world.repo, "diff", "--name-only") == "numbers"
