"""What the fields of calls to all APIs have in common.

Under a budget, a limit of tokens or a list of models, a call is passed on only if each of its
fields is listed in `openai_fields`, `anthropic_fields` or `google_fields`. A listed field costs
nothing, or only tokens that are counted before the call. What would be billed otherwise is not
listed: tools that the provider runs, stored conversations, faster service, audio and files.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Limit = Annotated[int, Field(ge=1, le=10_000_000)]
"""Maximum number of tokens of an answer."""
Answers = Annotated[int, Field(ge=1, le=128)]
"""Number of alternative answers."""
Free = Any
"""A value that costs only its size, such as the schema of a tool that the worker runs."""


class Fields(BaseModel):
    """Listed fields of an object in a call's body."""

    # protection: only-listed-fields-under-limits
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CacheControl(Fields):
    """Setting to cache a prompt."""

    type: Literal["ephemeral"]
    # protection: only-cheap-cache-under-limits
    ttl: Literal["5m"] | None = None
    """How long the prompt is cached. Longer times cost more."""


class Text(Fields):
    """Text in a message."""

    type: Literal["text", "input_text", "output_text", "summary_text", "reasoning_text"]
    text: str
    cache_control: CacheControl | None = None
    annotations: list[Free] | None = None
    citations: list[Free] | None = None
    logprobs: list[Free] | None = None
