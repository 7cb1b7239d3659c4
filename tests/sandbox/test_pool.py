"""Tests of pools of sandboxes, and of the calls for programs of `asyncio`."""

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from orchestrator.base.errors import ImageNotFoundError, NotRunningError
from orchestrator.engine.docker import DockerEngine
from orchestrator.sandbox.live.aio import AsyncSandbox, run_all_async
from orchestrator.sandbox.live.box import Sandbox
from orchestrator.sandbox.live.pool import SandboxPool
from orchestrator.sandbox.models import EndReason, SandboxLimits, Submission, Template
from tests.support.live import eventually

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("homes")]
SMALL = Template(limits=SandboxLimits(memory="64m", cpus=1, pids=32, grace=0.2))


def _living() -> int:
    return len(Sandbox.list())


def test_pool_gives_each_sandbox_once_and_makes_others(docker_engine: DockerEngine) -> None:
    with SandboxPool(SMALL, warm=2, ttl=100, engine=docker_engine) as pool:
        eventually(lambda: _living() == 2, "two sandboxes are ready")
        first, second = pool.take(), pool.take()
        assert first.id != second.id
        assert 50 < first.expires_in <= 100
        assert first.run(["pwd"]).ok
        eventually(lambda: _living() == 4, "two others are ready")
        first.kill()
    assert [info.id for info in Sandbox.list()] == [second.id]
    assert second.run(["true"]).ok
    second.kill()
    with pytest.raises(NotRunningError):
        pool.take()


def test_pool_replaces_sandboxes_that_ended_and_says_why_it_has_none(
    docker_engine: DockerEngine,
) -> None:
    with SandboxPool(SMALL, warm=1, engine=docker_engine) as pool:
        eventually(lambda: _living() == 1, "a sandbox is ready")
        Sandbox.connect(Sandbox.list()[0].id, engine=docker_engine).kill()
        box = pool.take()
        assert box.run(["true"]).ok
        box.kill()
    with (
        SandboxPool(Template(image="no/such:image"), engine=docker_engine) as pool,
        pytest.raises(ImageNotFoundError),
    ):
        pool.take()


def test_unused_sandboxes_end_with_their_process(docker_engine: DockerEngine) -> None:
    program = textwrap.dedent("""
        import os, time
        from orchestrator import Sandbox, SandboxPool, Template
        pool = SandboxPool(Template(), warm=1)
        box = pool.take()
        while len(Sandbox.list()) < 2: time.sleep(0.05)
        print(box.id, flush=True)
        os._exit(0)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    eventually(lambda: _living() == 1, "the end of the sandbox that nobody took")
    box = Sandbox.connect(done.stdout.strip(), engine=docker_engine)
    assert box.run(["true"]).ok
    box.kill()


def test_programs_of_asyncio_await_the_same_calls(docker_engine: DockerEngine) -> None:
    async def work() -> None:
        async with await AsyncSandbox.create(SMALL, engine=docker_engine) as box:
            await box.files.write("a", b"content")
            done = await asyncio.gather(box.run(["cat", "a"]), box.run(["cat"], stdin=b"in"))
            assert [each.stdout for each in done] == [b"content", b"in"]
            process = await box.start(["cat"])
            await process.write(b"x")
            assert await process.output(timeout=20) == b"x"
            await process.close_stdin()
            assert (await process.wait(20)).ok
            asleep = asyncio.create_task(box.run(["sleep", "60"]))
            await asyncio.sleep(1)
            asleep.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asleep
            # One is ours, which keeps the time.
            count = ["sh", "-c", "cat /proc/[0-9]*/comm | grep -c sleep"]
            for _ in range(100):
                if (await box.run(count)).stdout == b"1\n":
                    break
            else:
                raise AssertionError("the cancelled command still runs")
            assert [info.id for info in await AsyncSandbox.list()] == [box.id]
        submissions = [Submission(id="a", command=("sh", "-c", "exit 3")) for _ in range(2)]
        codes = [
            result.exit_code
            async for result in run_all_async(submissions, template=SMALL, engine=docker_engine)
        ]
        assert codes == [3, 3]

    asyncio.run(work())
    assert _living() == 0


def test_iteration_that_is_left_ends_its_sandboxes(
    docker_engine: DockerEngine, homes: Path
) -> None:
    async def work() -> None:
        results = run_all_async(
            [
                Submission(id="slow", command=("sleep", "100"), timeout=90),
                Submission(id="quick", command=("true",)),
            ],
            template=SMALL, engine=docker_engine,
        )  # fmt: skip
        async for result in results:
            assert (result.id, result.reason) == ("quick", EndReason.EXITED)
            break
        await results.aclose()

    asyncio.run(work())
    assert not any(path.is_dir() for path in homes.iterdir())
