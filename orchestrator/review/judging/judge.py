"""Judge the candidates of a run: run checks on trees, collect flags, rank, decide.

The stages in their order: checks on the base commit; on the candidates, with the base commit's
tests; repetitions of checks whose result differs from the base commit's; failing checks with the
candidates' own tests; hidden tests; checks with tests that are mixed with mutants, which must fail;
and results that only order the candidates that pass.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.lock_file import take_lock
from orchestrator.base.files.owner import own_place
from orchestrator.base.text.split_lines import split_lines
from orchestrator.config.workflow.planning import config_of
from orchestrator.repository.commits.merge_tree import quarantine, require_git
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.cases import Case, candidates_of, scores_of
from orchestrator.review.judging.changes import read_change
from orchestrator.review.judging.check_run import Tester
from orchestrator.review.judging.comparison import Comparison, try_base
from orchestrator.review.judging.coverage_file import coverage_of
from orchestrator.review.judging.evidence import Evidence, Job
from orchestrator.review.judging.flags import CheckRuns, Facts, flags_of, literals_of
from orchestrator.review.judging.hidden_tests import HiddenTests
from orchestrator.review.judging.instruments import Instruments
from orchestrator.review.judging.judge_request import JudgingRules
from orchestrator.review.judging.judgement import Judgement
from orchestrator.review.judging.programs import programs_of
from orchestrator.review.judging.ranking import decide, equal_so_far, rank
from orchestrator.review.judging.shadowing import modules_of
from orchestrator.review.judging.store import next_number, write_judgement
from orchestrator.review.judging.tournament import Entrant, hold_tournament
from orchestrator.review.judging.trees import Trees
from orchestrator.review.judging.trials import Trials
from orchestrator.review.judging.tripwires import touches_of
from orchestrator.review.landing.branches import Branch, RunBranches
from orchestrator.state.judgements import JUDGED, LOCK
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_record import read_record

_NUMBERS = re.compile(r"\d+")


def judge_run(
    repository: Repository, runs: Sequence[RunBranches], rules: JudgingRules, tester: Tester
) -> Judgement:
    """Judge the candidates of a run, and record the judgement.

    Args:
        repository: The user's repository.
        runs: Earlier runs for the same task, and last the run to judge. The branches of all
            these runs are the candidates.
        rules: The checks, and how they count.
        tester: Runs checks in fresh containers.

    Raises:
        ConfigError: A worker has no result yet, the candidates start from different commits, or a
            `must_fix` check does not always fail on the base commit.
        EngineError: The checks gave no result on the base.
        RepositoryError: Git failed.
    """
    require_git("to judge branches without a checkout", "compare the branches by hand")
    base = _base_of(runs)
    place = own_place(repository.state_dir, "judging")
    with _only_one(repository), quarantine(repository, place) as git:
        began = runs[-1].began
        trees = Trees(repository, git, place, base, began, Instruments(rules.instruments))
        # protection: scripts-that-build-file-starts-are-compared-with-bases
        programs = programs_of(rules.all_checks, trees.text_of_base)
        modules = modules_of(trees.entries(base))
        # protection: files-that-check-executes-are-compared-with-bases
        trees = replace(trees, instruments=Instruments(rules.instruments, programs, modules))
        evidence = Evidence(tester, git, own_place(repository.state_dir, JUDGED))
        judging = _Judging(runs, rules, trees, evidence)
        judgement = judging.judgement()
        write_judgement(judging.directory.path, judgement)
    return judgement


def check_base(repository: Repository, base: str, rules: JudgingRules, tester: Tester) -> None:
    """Run the checks on the base commit before candidates exist, and store the results.

    Raises:
        ConfigError: A check that must fail before the fix (`must_fix`) passes.
        EngineError: A check gave no result.
    """
    with _only_one(repository):
        evidence = Evidence(tester, repository.git, own_place(repository.state_dir, JUDGED))
        try_base(rules, evidence, base)


@contextmanager
def _only_one(repository: Repository) -> Iterator[None]:
    """Hold the lock for judging in this repository.

    Raises:
        ConfigError: Another process holds the lock.
    """
    lock = take_lock(repository.state_dir / LOCK)
    # protection: one-judgement-of-repository-at-time
    if lock is None:
        raise ConfigError(
            "another process is judging a run of this repository",
            key="judgement.locked",
            hint="wait for the end of the other judgement",
        )
    with lock:
        yield


def _base_of(runs: Sequence[RunBranches]) -> str:
    bases = set()
    for run in runs:
        for branch in run.branches:
            bases.add(branch.base)
            if branch.status is None:
                raise ConfigError(
                    f"worker {branch.worker_id} of run {run.run_id} {branch.sentence}: not judged",
                    key="worker.unfit",
                    hint=run.way_to_results,
                )
    if not bases:
        raise ConfigError(
            f"no worker of run {runs[-1].run_id} has commits that can be judged",
            key="judgement.no-candidates",
            hint="`orchestrator restore` restores branches that a cleanup removed",
        )
    if len(bases) > 1:
        raise ConfigError(
            f"the workers of run {runs[-1].run_id} start from different commits: they are not "
            "candidates for one task",
            key="judgement.bases-differ",
            hint="name the candidates: `orchestrator judge RUN 1 2`",
        )
    return bases.pop()


class _Judging:
    def __init__(
        self, runs: Sequence[RunBranches], rules: JudgingRules, trees: Trees, evidence: Evidence
    ) -> None:
        self._rules = rules
        self._trees = trees
        self._evidence = evidence
        self._base = trees.base
        self._comparison = Comparison(rules, trees, evidence)
        self._hidden = HiddenTests(rules, trees, evidence, self._comparison)
        self._trials = Trials(rules, trees, evidence, self._hidden)
        self._judge_problems: tuple[str, ...] = ()
        self._state_dir = trees.repository.state_dir
        self.directory = self._directory(runs[-1])
        """Directory of the run that the judgement belongs to."""
        self._cases = [self._case(run, branch) for run in runs for branch in run.branches]

    def _directory(self, run: RunBranches) -> RunDirectory:
        return RunDirectory(self._state_dir / "runs" / run.run_id)

    def judgement(self) -> Judgement:
        """Judge all candidates, and return the judgement."""
        try_base(self._rules, self._evidence, self._base)
        busy = [case for case in self._cases if not case.is_empty]
        self._comparison.compare(busy)
        self._comparison.try_own_versions(busy)
        self._comparison.use_frozen([case for case in busy if case.has_new_control])
        self._raise_flags(self._cases)
        self._comparison.doubt([case for case in busy if case.passes])
        self._hidden.judge([case for case in busy if not case.is_out])
        self._trials.hold([case for case in busy if case.passes])
        self._raise_flags(self._cases)
        self._order([case for case in busy if case.passes])
        for case in busy:
            case.others = (*self._comparison.own_verdicts(case), *case.others)
        ranked = rank(scores_of(self._cases))
        decision, picked = decide(ranked)
        checks = self._rules.all_checks
        return Judgement(
            run_id=self.directory.run_id,
            number=next_number(self.directory.path),
            base=self._base,
            tests=self._rules.tests,
            checks=self._rules.checks,
            must_fix=self._rules.must_fix,
            unstable=tuple(check for check in checks if check in self._comparison.unstable),
            without_canary=tuple(
                check for check in checks if check not in self._trials.checks_tried
            ),
            varying_names=tuple(check for check in checks if self._comparison.varying.get(check)),
            judge_problems=self._judge_problems,
            decision=decision,
            picked=picked,
            ranking=candidates_of(self._cases, ranked),
        )

    def _case(self, run: RunBranches, branch: Branch) -> Case:
        changes = self._trees.changes_to_restore(branch.commit, self._rules.tests)
        base, commit = self._base, branch.commit
        return Case(
            branch=branch,
            change=read_change(
                self._trees.repository, self._trees.instruments, base=base, commit=commit
            ),
            paths=read_allowed_paths(self._directory(run), branch.worker_id),
            protected=self._trees.with_changes(commit, changes),
            touches=touches_of(self._trees, commit),
            has_new_control=None in changes.values(),
            has_own_tests=bool(self._trees.changes_to_restore(commit, "frozen")),
            run_id=run.run_id,
            result=self._directory(run).result(branch.worker_id),
        )

    def _raise_flags(self, cases: Sequence[Case]) -> None:
        before = self._trees.entries(self._base)
        kind = self._trees.instruments.kind
        # Texts and numbers that occur only in tests.
        files = {path: entry.blob for path, entry in before.items() if entry.is_file}
        tests = [blob for path, blob in files.items() if kind(path) == "test"]
        product = [blob for path, blob in files.items() if kind(path) != "test"]
        found = literals_of([*self._rules.hidden.values(), *self._trees.contents(tests)])
        literals = found - literals_of(self._trees.contents(product))
        for case in cases:
            facts = Facts(
                base=self._base,
                commit=case.branch.commit,
                protected=case.protected,
                tests=self._rules.tests,
                instruments=self._trees.instruments,
                before=before,
                after=self._trees.entries(case.branch.commit),
                runs=[
                    CheckRuns(
                        check=verdict.command,
                        base=self._comparison.on(self._base, verdict.command),
                        protected=self._comparison.on(case.protected, verdict.command),
                        varying=self._comparison.varying.get(verdict.command, frozenset()),
                        commit=self._comparison.own(case, verdict),
                    )
                    for verdict in case.verdicts
                    if verdict.verdict != "unstable"
                ],
                paths=case.paths,
                added=case.change.added,
                literals=literals,
                doubts=case.doubts,
                trials=case.trials,
                touches=case.touches,
            )
            case.flags = flags_of(facts)

    def _order(self, cases: Sequence[Case]) -> None:
        """Collect the results that order passing candidates: lint, coverage, probe, judge."""
        rules = self._rules
        tools = (*rules.lint, *([rules.coverage] if rules.coverage else []))
        # protection: linter-has-configuration-of-base
        configured = {
            # A candidate must not configure the tools that compare it with others.
            case.number: self._trees.with_base_configuration(case.protected, case.branch.commit)
            for case in cases
        }
        jobs = [
            self._job(commit, tool)
            for commit in (self._base, *configured.values())
            for tool in tools
        ]
        jobs += [self._job(case.protected, rules.probe) for case in cases if rules.probe]
        self._evidence.collect(jobs if cases else ())
        for case in cases:
            commit = configured[case.number]
            if rules.lint:
                case.lint = sum(self._findings(commit, command) for command in rules.lint)
            if rules.coverage:
                seen_lines = self._evidence.of(self._job(commit, rules.coverage)).coverage
                case.coverage = coverage_of(seen_lines, case.change.added)
            if rules.probe:
                seen = self._output_of(case.protected, rules.probe)
                case.cluster = "\n".join(row.rstrip() for row in split_lines(seen.strip()))
        if rules.judge:
            self._hold_tournament(rules.judge)

    def _findings(self, commit: str, command: str) -> int:
        before, after = (
            Counter(
                _NUMBERS.sub("#", row) for row in split_lines(self._output_of(tree, command)) if row
            )
            for tree in (self._base, commit)
        )
        return (after - before).total()

    def _output_of(self, commit: str, command: str) -> str:
        return self._evidence.of(self._job(commit, command)).output

    @staticmethod
    def _job(commit: str, command: str) -> Job:
        return Job(commit=commit, command=command, keeps_output=True)

    def _hold_tournament(self, command: str) -> None:
        equal = {score.worker_id for score in equal_so_far(scores_of(self._cases))}
        cases = [case for case in self._cases if case.number in equal]
        if len(cases) < 2:
            return
        entrants = {
            case.number: Entrant(
                case.branch.commit, [verdict.model_dump(mode="json") for verdict in case.verdicts]
            )
            for case in cases
        }
        task = cases[0].branch.task
        results = hold_tournament(self._trees, self._evidence, command, task, entrants)
        self._judge_problems = results.unusable
        for case in cases:
            case.wins = results.wins[case.number]


def read_allowed_paths(run: RunDirectory, worker_id: int) -> tuple[str, ...]:
    """Return the `paths` of a worker's task as patterns; empty if any file may be changed."""
    record = read_record(run)
    if record is None:
        return ()
    config = record.config
    name = next((worker.name for worker in record.workers if worker.worker_id == worker_id), None)
    if record.workflow is not None and name is not None:
        config = config_of(config, record.workflow[name], record.programs)
    return config.triggers.paths
