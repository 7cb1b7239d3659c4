"""Clients of `orchestrator mcp`: the SDK's own, in this process or over stdio, and raw lines."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

from orchestrator.faces.mcp.server import Allowed, server_of
from orchestrator.faces.mcp.starting import Limits
from orchestrator.faces.mcp.tools import offer_tools
from orchestrator.repository.repository import Repository

ERAS = ("legacy", "2026-07-28")
"""Modes of the SDK's client: the handshake of the first protocols, and requests without one."""
EVERYTHING: tuple[Allowed, ...] = ("run", "stop", "pick", "merge")
SHELL = {"agent_cli": "shell"}


class Refused(Exception):
    """A tool answered that its call failed."""


class Session:
    """Calls tools by their names without prefix, and returns the structured answers."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        answer = await self.client.call_tool(f"orchestrator_{name}", arguments)
        (content,) = answer.content
        if answer.is_error:
            raise Refused(content.text)
        assert json.loads(content.text) == answer.structured_content
        return answer.structured_content  # type: ignore[no-any-return]

    async def ended(self, run_id: str) -> dict[str, Any]:
        """Wait for the end of a run, as a client does."""
        while (answer := await self("wait", run=run_id))["state"] == "running":
            pass
        return answer


Story = Callable[[Session], Awaitable[None]]


def in_process(
    repo: Path, story: Story, *, allowed: Collection[Allowed] = (), **limits: Any
) -> None:
    """Run a story with a server in this process."""
    given = {"options": SHELL, "config": None, "max_workers": 3, "budget_total": None, **limits}
    server = server_of(offer_tools(Repository(repo), Limits(**given), allowed))

    async def play() -> None:
        async with Client(server) as client:
            await story(Session(client))

    asyncio.run(play())


def over_stdio(repo: Path, story: Story, *options: str, mode: str = "auto") -> None:
    """Run a story with `orchestrator mcp` as another process."""

    async def play() -> None:
        async with connected(repo, *options, mode=mode) as session:
            await story(session)

    asyncio.run(play())


@asynccontextmanager
async def connected(repo: Path, *options: str, mode: str) -> AsyncIterator[Session]:
    """Yield a session with a new server process."""
    words = ["-m", "orchestrator", "mcp", "--root", str(repo), *options]
    server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    with Path("/dev/null").open("w") as nowhere:
        async with Client(stdio_client(server, errlog=nowhere), mode=mode) as client:
            yield Session(client)


def lines(repo: Path, requests: Collection[bytes], *options: str) -> tuple[bytes, bytes, int]:
    """Send lines to a server; return its stdout, its stderr and its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "mcp", "--root", str(repo), *options],
        input=b"".join(line + b"\n" for line in requests),
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.stdout, done.stderr, done.returncode
