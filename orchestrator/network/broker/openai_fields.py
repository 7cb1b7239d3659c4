"""Listed fields of OpenAI's APIs, for calls with limits."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from orchestrator.network.broker.fields import Answers, CacheControl, Fields, Free, Limit, Text

_DataUrl = Annotated[str, Field(pattern=r"^data:image/")]


class _Refusal(Fields):
    type: Literal["refusal"]
    refusal: str


class _ImageUrl(Fields):
    url: _DataUrl
    detail: str | None = None


class _ChatImage(Fields):
    type: Literal["image_url"]
    image_url: _ImageUrl
    cache_control: CacheControl | None = None


_ChatPart = Annotated[Text | _Refusal | _ChatImage, Field(discriminator="type")]


class _CalledFunction(Fields):
    name: str | None = None
    arguments: str | None = None


class _CalledTool(Fields):
    name: str | None = None
    input: str | None = None


class _ChatToolCall(Fields):
    id: str | None = None
    index: int | None = None
    type: Literal["function", "custom"] | None = None
    function: _CalledFunction | None = None
    custom: _CalledTool | None = None


class _ChatMessage(Fields):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[_ChatPart] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[_ChatToolCall] | None = None
    tool_call_id: str | None = None
    function_call: _CalledFunction | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    annotations: list[Free] | None = None
    provider_specific_fields: Free = None
    cache_control: CacheControl | None = None


class _Function(Fields):
    name: str
    description: str | None = None
    parameters: Free = None
    strict: bool | None = None


class _CustomTool(Fields):
    name: str
    description: str | None = None
    format: Free = None


class _ChatTool(Fields):
    type: Literal["function", "custom"]
    function: _Function | None = None
    custom: _CustomTool | None = None
    cache_control: CacheControl | None = None


class _Named(Fields):
    name: str


class _ChatChoice(Fields):
    type: Literal["function", "custom"]
    function: _Named | None = None
    custom: _Named | None = None


class _StreamOptions(Fields):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class _Sampling(Fields):
    """Settings that chat completions and responses share."""

    model: str
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    parallel_tool_calls: bool | None = None
    service_tier: Literal["auto", "default", "flex"] | None = None
    store: bool | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None


class _ChatThinking(Fields):
    type: Literal["enabled", "disabled"]


class Chat(_Sampling):
    """Fields of OpenAI's chat completions, and of compatible servers."""

    messages: list[_ChatMessage] | None = None
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    n: Answers | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    top_k: float | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    modalities: list[Literal["text"]] | None = None
    response_format: Free = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    thinking: _ChatThinking | None = None
    tools: list[_ChatTool] | None = None
    tool_choice: str | _ChatChoice | None = None
    functions: list[_Function] | None = None
    function_call: str | _Named | None = None


class _InputImage(Fields):
    type: Literal["input_image"]
    image_url: _DataUrl
    detail: str | None = None


_InputPart = Annotated[Text | _Refusal | _InputImage, Field(discriminator="type")]


class _Item(Fields):
    id: str | None = None
    status: str | None = None


class _Message(_Item):
    type: Literal["message"] | None = None
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_InputPart]
    phase: str | None = None


class _FunctionCall(_Item):
    type: Literal["function_call"]
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str


class _CustomCall(_Item):
    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    namespace: str | None = None
    input: str


class _ShellCall(_Item):
    type: Literal["local_shell_call"]
    call_id: str | None = None
    action: Free


class _Output(_Item):
    type: Literal["function_call_output", "custom_tool_call_output", "local_shell_call_output"]
    call_id: str | None = None
    name: str | None = None
    output: str | list[_InputPart]


class _Reasoning(_Item):
    type: Literal["reasoning"]
    summary: list[_InputPart] | None = None
    content: list[_InputPart] | None = None
    encrypted_content: str | None = None


class _FunctionTool(_Function):
    type: Literal["function"]
    defer_loading: bool | None = None


class _FreeTool(_CustomTool):
    type: Literal["custom"]
    defer_loading: bool | None = None


class _LocalShell(Fields):
    type: Literal["local_shell"]


class _Namespace(Fields):
    type: Literal["namespace"]
    name: str
    description: str | None = None
    tools: list[Annotated[_FunctionTool | _FreeTool, Field(discriminator="type")]]


_ResponsesTool = Annotated[
    _FunctionTool | _FreeTool | _LocalShell | _Namespace, Field(discriminator="type")
]


class _MoreTools(_Item):
    type: Literal["additional_tools"]
    role: str | None = None
    tools: list[_ResponsesTool]


def _kind_of_item(item: object) -> str:
    kind = item.get("type") if isinstance(item, dict) else getattr(item, "type", None)
    return "message" if kind is None else str(kind)


_InputItem = Annotated[
    Annotated[_Message, Tag("message")]
    | Annotated[_FunctionCall, Tag("function_call")]
    | Annotated[_CustomCall, Tag("custom_tool_call")]
    | Annotated[_ShellCall, Tag("local_shell_call")]
    | Annotated[_Output, Tag("function_call_output")]
    | Annotated[_Output, Tag("custom_tool_call_output")]
    | Annotated[_Output, Tag("local_shell_call_output")]
    | Annotated[_Reasoning, Tag("reasoning")]
    | Annotated[_MoreTools, Tag("additional_tools")],
    Discriminator(_kind_of_item),
]


class _ReasoningSettings(Fields):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None
    context: str | None = None


class _TextSettings(Fields):
    format: Free = None
    verbosity: str | None = None


class _ResponsesChoice(Fields):
    type: Literal["function", "custom"]
    name: str


class Responses(_Sampling):
    """Fields of OpenAI's responses."""

    input: str | list[_InputItem] = ""
    instructions: str | None = None
    max_output_tokens: Limit | None = None
    max_tool_calls: int | None = None
    background: Literal[False] | None = None
    include: list[Literal["reasoning.encrypted_content", "message.output_text.logprobs"]] | None = (
        None
    )
    reasoning: _ReasoningSettings | None = None
    text: _TextSettings | None = None
    truncation: Literal["auto", "disabled"] | None = None
    client_metadata: dict[str, str] | None = None
    tools: list[_ResponsesTool] | None = None
    tool_choice: str | _ResponsesChoice | None = None
