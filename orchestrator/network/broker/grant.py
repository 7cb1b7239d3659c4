"""A worker's grant: API calls that the worker may make, in a file that only the broker reads."""

import hashlib

from pydantic import BaseModel, ConfigDict, Field


class Upstream(BaseModel):
    """Address of a model provider's API, and the API key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    """Base URL, without the version at its end."""
    key: str | None = None
    """API key that replaces the worker's token in requests; None for a server without keys."""


class Repository(BaseModel):
    """A private repository of a git host, and the token to read it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    """URL without `.git`; an end of `/*` stands for all repositories with this prefix."""
    key: str
    """User and token, as `USER:TOKEN`."""


class Grant(BaseModel):
    """The API calls that one attempt of a worker may make.

    The broker reads it from a file that is named after the IP address of the worker's container.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ledger: str
    """Name of the file in which the broker records what the worker spends."""
    token: str
    """Hash of the worker's token."""
    upstreams: dict[str, Upstream]
    """Addresses and keys of APIs, by the first part of the path of a call to the broker."""
    repositories: tuple[Repository, ...] = ()
    """Private repositories that the worker may read."""
    models: tuple[str, ...] = ()
    """Patterns of the names of allowed models; empty: all models."""
    prices: dict[str, tuple[float, float]] = {}
    """The user's prices of models: USD per million tokens of input and output."""
    budget: float | None = None
    """Maximum cost of the worker, in USD."""
    tokens: int | None = None
    """Maximum number of input and output tokens of the worker."""
    calls_per_minute: int = Field(default=0, ge=0)
    """Maximum number of calls per minute; 0: no limit."""

    @property
    def is_limited(self) -> bool:
        """Whether the worker's models, cost or tokens are limited."""
        return bool(self.models) or self.budget is not None or self.tokens is not None


def hash_token(token: str) -> str:
    """Return the hash of a worker's token; a grant contains only the hash."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
