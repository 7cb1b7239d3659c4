"""Wrap an adapter from another package, so that each of its errors becomes a one-line message."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from orchestrator.agents.base import (
    Agent,
    AgentCommand,
    AgentOutcome,
    AgentOutput,
    AgentProgress,
    AgentSettings,
    ProgressReader,
    SessionAgent,
    SessionFiles,
)
from orchestrator.agents.output.fields import as_line, as_summary
from orchestrator.base.errors import ConfigError
from orchestrator.base.results import Reason, Status
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.engine.interface.protocol import ExitStatus


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain NUL")
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"must be a regular expression: {error}") from error
    return text


_METHODS: Final = ("missing_key", "unsupported", "command", "progress_reader", "outcome")
_Text = Annotated[str, Field(min_length=1)]
_Word = Annotated[str, AfterValidator(_without_nul)]
_Count = Annotated[int, Field(ge=0)]
_Cost = Annotated[float, Field(ge=0)]


class _Part(BaseModel):
    """Validated copy of a value that an adapter returns; adapters may return anything."""

    model_config = ConfigDict(strict=True, from_attributes=True, allow_inf_nan=False)


class _Attributes(_Part):
    name: _Text
    image: _Text
    inherited_env: tuple[_Text, ...]
    ignored_files: tuple[_Text, ...]


class _Command(_Part):
    argv: tuple[_Word, ...] = Field(min_length=1)
    env: Mapping[_Text, _Word]
    default_env: Mapping[_Text, _Word]


class _Progress(_Part):
    cost: _Cost | None
    tokens: _Count | None = None
    steps: _Count | None
    bounded: bool = True


class _Session(_Part):
    kept: tuple[_Text, ...]
    id: Annotated[_Text, AfterValidator(_pattern)]
    chosen: bool = False


class _Outcome(_Part):
    status: Status
    reason: Reason | None
    message: str | None
    steps: _Count
    cost: _Cost | None
    tokens: _Count | None
    summary: str | None
    retry_after: _Cost | None = None


_OPTIONAL_TEXT: Final[TypeAdapter[str | None]] = TypeAdapter(
    _Text | None, config=ConfigDict(strict=True)
)


class ForeignAgent:
    """Calls an adapter from another package, and validates everything that it returns."""

    def __init__(self, name: str, package: str, load: Callable[[], Callable[[], Agent]]) -> None:
        """Load the adapter of an entry point.

        Raises:
            ConfigError: The adapter cannot be loaded or is not a valid adapter.
        """
        self.name = name
        self._package = package
        with self._guard("loading"):
            self._agent = load()()
            face = _Attributes.model_validate(self._agent)
        missing = [name for name in _METHODS if not callable(getattr(self._agent, name, None))]
        if missing:
            raise self._defect(f"the method is missing: `{missing[0]}`")
        if face.name != name:
            raise self._defect(f"its `name` is `{face.name}`, which differs from the entry point's")
        self.image = face.image
        self.inherited_env = face.inherited_env
        self.ignored_files = face.ignored_files

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:
        """Return the result of the adapter's `missing_key`.

        Raises:
            ConfigError: The adapter failed or returned an invalid value.
        """
        with self._guard("missing_key"):
            return _OPTIONAL_TEXT.validate_python(self._agent.missing_key(model, environment))

    def unsupported(self, settings: AgentSettings) -> str | None:
        """Return the result of the adapter's `unsupported`.

        Raises:
            ConfigError: The adapter failed or returned an invalid value.
        """
        with self._guard("unsupported"):
            return _OPTIONAL_TEXT.validate_python(self._agent.unsupported(settings))

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return the result of the adapter's `command`.

        Raises:
            ConfigError: The adapter failed or returned an invalid value.
        """
        with self._guard("command"):
            checked = _Command.model_validate(self._agent.command(spec, settings))
        return AgentCommand(**dict(checked))

    def progress_reader(self) -> ProgressReader:
        """Return the adapter's progress reader, wrapped so that its results are validated.

        Raises:
            ConfigError: The adapter failed or returned an invalid value; the reader raises it too.
        """
        with self._guard("progress_reader"):
            read = self._agent.progress_reader()

        def read_checked(line: str) -> AgentProgress | None:
            with self._guard("progress_reader"):
                progress = read(line)
                checked = None if progress is None else _Progress.model_validate(progress)
            return None if checked is None else AgentProgress(**dict(checked))

        return read_checked

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Return the result of the adapter's `outcome`; if the adapter fails, return a failure."""
        try:
            with self._guard("outcome"):
                checked = _Outcome.model_validate(self._agent.outcome(output, exit_status))
        except ConfigError as error:
            return AgentOutcome(
                status=Status.FAILED, reason=Reason.AGENT_ERROR, message=error.message
            )
        texts = {"message": as_line(checked.message), "summary": as_summary(checked.summary)}
        return AgentOutcome(**{**dict(checked), **texts})

    @property
    def keeps_sessions(self) -> bool:
        """Whether the adapter has a part of the protocol `SessionAgent`."""
        return any(hasattr(self._agent, name) for name in ("session_files", "session_id"))

    @contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        try:
            yield
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join((what, *map(str, first["loc"])))
            raise self._defect(f"{place}: {first['msg']}") from error
        except Exception as error:
            raise self._defect(f"{what}: {type(error).__name__}: {error}") from error

    def _defect(self, what: str) -> ConfigError:
        return ConfigError(
            as_line(f"the adapter for `{self.name}` is broken: {what}") or "",
            key="adapter.broken",
            hint=f"report this to the authors of the package `{self._package}`, or remove it",
        )


class ForeignSessionAgent(ForeignAgent):
    """An adapter from another package whose program continues sessions."""

    _agent: SessionAgent

    def __init__(self, name: str, package: str, load: Callable[[], Callable[[], Agent]]) -> None:
        """Load the adapter of an entry point.

        Raises:
            ConfigError: The adapter cannot be loaded or is not a valid adapter.
        """
        super().__init__(name, package, load)
        if not callable(getattr(self._agent, "session_id", None)):
            raise self._defect("the method is missing: `session_id`")
        with self._guard("session_files"):
            checked = _Session.model_validate(self._agent.session_files)
        self.session_files = SessionFiles(**dict(checked))

    def session_id(self, output: AgentOutput) -> str | None:
        """Return the result of the adapter's `session_id`; None if the adapter fails."""
        try:
            with self._guard("session_id"):
                return _OPTIONAL_TEXT.validate_python(self._agent.session_id(output))
        except ConfigError:
            return None
