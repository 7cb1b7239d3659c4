"""A token bucket, which limits how often the workers of one model provider start."""

from collections.abc import Collection, Mapping
from typing import Final

from orchestrator.config.settings.run import Provider, RateLimit

_ROUNDING: Final = 1e-9


_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "claude": ("claude", "claude-code", "anthropic"),
    "codex": ("codex", "codex-cli", "openai"),
    "gemini": ("gemini", "gemini-cli", "google"),
}
"""Names that a configuration may use for an agent program's provider, the preferred name first."""


def provider_of(agent_cli: str, model: str | None, configured: Collection[str] = ()) -> str:
    """Return the name of the provider that a worker uses.

    Args:
        agent_cli: The worker's agent program.
        model: The worker's model.
        configured: Providers that the configuration names.
    """
    prefix, slash, _ = (model or "").partition("/")
    if slash and prefix in configured:
        return prefix
    names = _NAMES.get(agent_cli, ())
    return next((name for name in names if name in configured), agent_cli)


class Bucket:
    """A token bucket: a stock of allowed starts, which is refilled at a constant rate."""

    def __init__(self, limit: RateLimit, *, full: bool = True) -> None:
        """Create a full bucket, or an empty bucket if another process may have used all tokens."""
        self._limit = limit
        self._held = float(limit.capacity) if full else 0.0
        self._at: float | None = None

    def wait(self, now: float) -> float:
        """Return the seconds until a token is available."""
        self._fill(now)
        return max(0.0, 1 - _ROUNDING - self._held) / self._limit.refill_rate

    def take(self, now: float) -> None:
        """Take one token, for the start of a worker, out of the bucket."""
        self._fill(now)
        self._held = max(0.0, self._held - 1)

    def _fill(self, now: float) -> None:
        since = now if self._at is None else self._at
        more = max(0.0, now - since) * self._limit.refill_rate
        self._held, self._at = min(self._limit.capacity, self._held + more), max(now, since)


def bucket_of(providers: Mapping[str, Provider], name: str, *, full: bool = True) -> Bucket | None:
    """Create the token bucket of a provider; return None if the provider has no rate limit."""
    provider = providers.get(name)
    limit = None if provider is None else provider.rate_limit
    return Bucket(limit, full=full) if limit is not None and limit.enabled else None
