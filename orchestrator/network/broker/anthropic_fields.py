"""Listed fields of Anthropic's API, for calls with limits."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from orchestrator.network.broker.fields import CacheControl, Fields, Free, Limit, Text


class _ImageData(Fields):
    type: Literal["base64"]
    media_type: Annotated[str, Field(pattern=r"^image/")]
    data: str


class _Image(Fields):
    type: Literal["image"]
    source: _ImageData
    cache_control: CacheControl | None = None


class _ToolReference(Fields):
    type: Literal["tool_reference"]
    tool_name: str


class _Caller(Fields):
    type: Literal["direct"]


class _ToolUse(Fields):
    type: Literal["tool_use"]
    id: str
    name: str
    input: Free
    caller: _Caller | None = None
    cache_control: CacheControl | None = None


class _ToolResult(Fields):
    type: Literal["tool_result"]
    tool_use_id: str
    content: (
        str | list[Annotated[Text | _Image | _ToolReference, Field(discriminator="type")]] | None
    ) = None
    is_error: bool | None = None
    cache_control: CacheControl | None = None


class _Thought(Fields):
    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class _HiddenThought(Fields):
    type: Literal["redacted_thinking"]
    data: str


class _OutputConfig(Fields):
    effort: str | None = None
    format: Free = None


class _AnthropicMessage(Fields):
    role: Literal["user", "assistant", "system"]
    content: (
        str
        | list[
            Annotated[
                Text | _Image | _ToolUse | _ToolResult | _Thought | _HiddenThought,
                Field(discriminator="type"),
            ]
        ]
        | None
    ) = None
    output_config: _OutputConfig | None = None


class _OwnTool(Fields):
    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: Free
    input_examples: list[Free] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    eager_input_streaming: bool | None = None
    cache_control: CacheControl | None = None


class _ClientTool(Fields):
    """A tool that the provider defines and the client runs."""

    type: Annotated[str, Field(pattern=r"^(bash|text_editor|computer|memory)_[0-9]+$")]
    name: str
    display_width_px: int | None = None
    display_height_px: int | None = None
    display_number: int | None = None
    max_characters: int | None = None
    enable_zoom: bool | None = None
    cache_control: CacheControl | None = None


def _kind_of_tool(tool: object) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    return "own" if kind in (None, "custom") else "client"


class _Thinking(Fields):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None
    display: str | None = None


class _AnthropicChoice(Fields):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Metadata(Fields):
    user_id: str | None = None


class _Edit(Fields):
    # Other edits let the model write a summary, which is billed.
    type: Annotated[str, Field(pattern=r"^clear_")]
    keep: Free = None
    trigger: Free = None
    clear_at_least: Free = None
    clear_tool_inputs: Free = None
    exclude_tools: list[str] | None = None


class _ContextManagement(Fields):
    edits: list[_Edit] | None = None


class Messages(Fields):
    """Fields of Anthropic's messages."""

    model: str
    messages: list[_AnthropicMessage] | None = None
    max_tokens: Limit | None = None
    system: str | list[Text] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    thinking: _Thinking | None = None
    tools: (
        list[
            Annotated[
                Annotated[_OwnTool, Tag("own")] | Annotated[_ClientTool, Tag("client")],
                Discriminator(_kind_of_tool),
            ]
        ]
        | None
    ) = None
    tool_choice: _AnthropicChoice | None = None
    metadata: _Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    cache_control: CacheControl | None = None
    context_management: _ContextManagement | None = None
    output_config: _OutputConfig | None = None
    output_format: Free = None
