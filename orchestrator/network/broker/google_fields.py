"""Listed fields of Google's API, for calls with limits."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from orchestrator.network.broker.fields import Answers, Fields, Free, Limit


class _GoogleFields(Fields):
    """Fields that Google's API accepts in two spellings; the first one is passed on."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=to_camel, validate_by_name=True
    )


class _InlineData(_GoogleFields):
    mime_type: Annotated[str, Field(pattern=r"^image/")]
    data: str
    display_name: str | None = None


class _GoogleCall(_GoogleFields):
    id: str | None = None
    name: str
    args: Free = None


class _GoogleResponse(_GoogleFields):
    id: str | None = None
    name: str
    response: Free = None


class _GooglePart(_GoogleFields):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _GoogleCall | None = None
    function_response: _GoogleResponse | None = None
    inline_data: _InlineData | None = None


class _Content(_GoogleFields):
    role: str | None = None
    parts: _GooglePart | list[_GooglePart] | None = None


class _Declaration(_GoogleFields):
    name: str
    description: str | None = None
    behavior: str | None = None
    parameters: Free = None
    parameters_json_schema: Free = None
    response: Free = None
    response_json_schema: Free = None


class _GoogleTool(_GoogleFields):
    function_declarations: list[_Declaration]


class _ToolConfig(_GoogleFields):
    function_calling_config: Free = None


class _GenerationConfig(_GoogleFields):
    max_output_tokens: Limit | None = None
    candidate_count: Answers | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    seed: int | None = None
    stop_sequences: list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_mime_type: str | None = None
    response_schema: Free = None
    response_json_schema: Free = None
    response_logprobs: bool | None = None
    logprobs: int | None = None
    response_modalities: list[Literal["TEXT"]] | None = None
    media_resolution: str | None = None
    thinking_config: Free = None


class Gemini(_GoogleFields):
    """Fields of Google's `generateContent` and `streamGenerateContent`."""

    contents: _Content | list[_Content] | None = None
    system_instruction: str | _Content | None = None
    tools: list[_GoogleTool] | None = None
    tool_config: _ToolConfig | None = None
    generation_config: _GenerationConfig | None = None
    safety_settings: list[Free] | None = None
    labels: dict[str, str] | None = None
