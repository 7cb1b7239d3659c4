"""Run workflows on the local engine."""

from pathlib import Path

from orchestrator.base.events import Emit, ignore
from orchestrator.base.results import RunResult, WorkerResult
from orchestrator.config.workflow.model import Task, Workflow
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.runs.runner import ParallelRunner
from tests.support.runs import configured


def task(name: str, command: str, *needs: str, **more: object) -> Task:
    return Task.model_validate({"id": name, "task": command, "depends_on": needs, **more})


def run_workflow(
    repo: Path, engine: ContainerEngine, *tasks: Task, **more: object
) -> dict[str, WorkerResult]:
    return by_name(result_of(repo, engine, *tasks, **more))


def result_of(
    repo: Path,
    engine: ContainerEngine,
    *tasks: Task,
    workers: int = 3,
    emit: Emit = ignore,
    **more: object,
) -> RunResult:
    config = configured("-", workers=workers, **more)
    flow = Workflow(name="flow", tasks=tasks)
    return ParallelRunner(config, repo, engine=engine, workflow=flow, emit=emit).execute()


def by_name(result: RunResult) -> dict[str, WorkerResult]:
    return {str(one.name): one for one in result.results}
