"""An agent with a session: a script that gets its prompt as `$1`, and its session in `$SESSION`."""

from dataclasses import replace

from orchestrator.agents.base import (
    SESSION,
    AgentCommand,
    AgentOutput,
    AgentSettings,
    SessionFiles,
)
from orchestrator.agents.programs.shell import ShellAgent
from orchestrator.agents.sessions import first_text
from orchestrator.base.worker_spec import WorkerSpec

SPEAK = """echo '{"session": "s1"}'; echo "$1" >> "$SESSION/s1.jsonl"; """
"""Report the session `s1`, and add the prompt to its file."""


class Talker(ShellAgent):
    """Runs a script; `$CONTINUED` is the id of the session that it continues."""

    name = "talker"
    session_files = SessionFiles(kept=("{id}.jsonl", "{id}.db"), id="s[0-9]+")

    def __init__(self, script: str = SPEAK) -> None:
        self._script = script

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return the command line of the script."""
        session = settings.session
        again = session.id if session is not None and session.continued else None
        env = {"SESSION": SESSION, "CONTINUED": again or ""}
        made = super().command(spec, settings)
        argv = ("sh", "-c", self._script, "sh", spec.prompt)
        return replace(made, argv=argv, env={**made.env, **env})

    def session_id(self, output: AgentOutput) -> str | None:
        """Return the reported id."""
        return first_text(output, "session")
