"""Tests of the scripted model: the responses in every dialect."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.model_script import (
    Rule,
    Scenario,
    ToolCall,
    Turn,
    answer_to,
    read_messages,
)
from tests.support.model_server import ModelServer

WRITE = ToolCall(name="write_file", arguments={"path": "a.txt", "content": "x\n"})
SCENARIO = Scenario(
    (
        Rule(task="no key", turns=(Turn(status=401, text="Incorrect API key provided"),)),
        Rule(model="m-1", turns=(Turn(text="I write.", calls=(WRITE,)), Turn(text="Done."))),
        Rule(task="anyone", turns=(Turn(text="Hello."),)),
    )
)
CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(SCENARIO) as server:
        yield server


def _ask(server: ModelServer, path: str, model: str, task: str, **more: Any) -> str:
    answers = more.pop("answers", 0)
    messages = [{"role": "user", "content": [{"type": "text", "text": task}]}]
    messages += [{"role": "assistant", "content": []}] * answers
    body = {"model": model, "messages": messages, "tools": [{"name": "write_file"}], **more}
    request = urllib.request.Request(
        server.url + path, data=json.dumps(body).encode(), headers={"x-api-key": "secret"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode()


def _events(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_chat_completion_calls_tools_then_ends(server: ModelServer) -> None:
    first = json.loads(_ask(server, CHAT, "m-1", "t"))["choices"][0]
    second = json.loads(_ask(server, CHAT, "m-1", "t", answers=1))["choices"][0]

    (call,) = first["message"]["tool_calls"]
    assert call["function"]["name"] == "write_file"
    assert json.loads(call["function"]["arguments"]) == dict(WRITE.arguments)
    assert (first["finish_reason"], second["finish_reason"]) == ("tool_calls", "stop")
    assert second["message"]["content"] == "Done."


def test_messages_that_aider_answers_itself_are_ignored() -> None:
    talk = [
        {"role": "system", "content": "Act as a developer."},
        {"role": "user", "content": "Here are my files."},
        {"role": "assistant", "content": "Ok, I won't edit those."},
        {"role": "user", "content": "anyone there?"},
    ]
    exchange = answer_to(SCENARIO, CHAT, "", read_messages({"model": "m-2", "messages": talk}))
    assert (exchange.task, exchange.number) == ("anyone there?", 0)
    assert exchange.turn.text == "Hello."


def test_chat_completion_streams(server: ModelServer) -> None:
    text = _ask(server, CHAT, "m-1", "t", stream=True)

    chunks = _events(text)
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas).strip() == "I write."
    assert [d["tool_calls"][0]["function"]["name"] for d in deltas if "tool_calls" in d] == [
        "write_file"
    ]
    assert chunks[-1]["usage"]["total_tokens"] > 0
    assert text.endswith("data: [DONE]\n\n")


def test_message_uses_tools_then_ends(server: ModelServer) -> None:
    first = json.loads(_ask(server, MESSAGES, "m-1", "t"))
    second = json.loads(_ask(server, MESSAGES, "m-1", "t", answers=1))

    assert [block["type"] for block in first["content"]] == ["text", "tool_use"]
    assert first["content"][1]["input"] == dict(WRITE.arguments)
    assert (first["stop_reason"], second["stop_reason"]) == ("tool_use", "end_turn")


def test_message_streams(server: ModelServer) -> None:
    events = _events(_ask(server, MESSAGES + "?beta=true", "m-1", "t", stream=True))

    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert deltas[0]["text"] == "I write."
    assert json.loads(deltas[1]["partial_json"]) == dict(WRITE.arguments)
    assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]


def _items(task: str, *after: dict[str, Any]) -> list[dict[str, Any]]:
    before = [
        {"type": "message", "role": role, "content": "rules"} for role in ("developer", "user")
    ]
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": task}]}
    return [*before, asked, *after]


ANSWERED = (
    {"type": "message", "role": "assistant", "content": []},
    {"type": "function_call", "name": "write_file", "call_id": "call_0_0", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_0_0", "output": "ok"},
)


def test_response_calls_tools_then_ends(server: ModelServer) -> None:
    first = json.loads(_ask(server, RESPONSES, "m-1", "", input=_items("t")))
    second = json.loads(_ask(server, RESPONSES, "m-1", "", input=_items("t", *ANSWERED)))

    text, call = first["output"]
    assert text["content"][0]["text"] == "I write."
    assert (call["type"], call["name"]) == ("function_call", "write_file")
    assert json.loads(call["arguments"]) == dict(WRITE.arguments)
    (text,) = second["output"]
    assert text["content"][0]["text"] == "Done."
    assert [exchange.task for exchange in server.exchanges] == ["t", "t"]


def test_response_streams(server: ModelServer) -> None:
    events = _events(_ask(server, RESPONSES, "m-1", "", input=_items("t"), stream=True))

    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in items] == ["message", "function_call"]
    assert [events[0]["type"], events[-1]["type"]] == ["response.created", "response.completed"]
    assert events[-1]["response"]["usage"]["total_tokens"] > 0
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_error_has_its_status_and_message(server: ModelServer, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        _ask(server, path, "m-1", "no key", input="no key")

    with caught.value as response:
        assert response.code == 401
        assert "Incorrect API key" in json.load(response)["error"]["message"]


def test_unknown_task_is_an_error(server: ModelServer) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        _ask(server, CHAT, "m-2", "t")

    caught.value.close()
    assert caught.value.code == 404


def test_request_without_tools_gets_text(server: ModelServer) -> None:
    answer = json.loads(_ask(server, CHAT, "m-1", "t", tools=[]))["choices"][0]

    assert answer["message"] == {"role": "assistant", "content": "I write."}


def test_provider_prefix_is_ignored_and_requests_are_recorded(server: ModelServer) -> None:
    _ask(server, CHAT, "vendor/m-1", "t", answers=7)

    (exchange,) = server.exchanges
    assert (exchange.plain_model, exchange.key, exchange.number) == ("m-1", "secret", 7)
    assert exchange.turn.text == "Done."


def test_reads_a_scenario_file() -> None:
    text = json.dumps(
        {"rules": [{"model": "m", "turns": [{"calls": [{"name": "n", "arguments": {"a": 1}}]}]}]}
    )

    turn = Scenario.from_json(text).turn("m", "anything", 0)

    assert turn.calls == (ToolCall(name="n", arguments={"a": 1}),)


def _ask_gemini(server: ModelServer, method: str, task: str, **more: Any) -> str:
    contents = [{"role": "user", "parts": [{"text": "<session_context>"}, {"text": task}]}]
    contents += [{"role": "model", "parts": []}] * more.get("answers", 0)
    functions = [{"name": "write_file"}]
    body = {"contents": contents, "tools": [{"functionDeclarations": functions}]}
    request = urllib.request.Request(
        f"{server.url}/v1beta/models/m-1:{method}",
        data=json.dumps(body).encode(),
        headers={"x-goog-api-key": "secret"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode()


def test_gemini_calls_functions_then_ends(server: ModelServer) -> None:
    first = json.loads(_ask_gemini(server, "generateContent", "t"))["candidates"][0]
    second = json.loads(_ask_gemini(server, "generateContent", "t", answers=1))["candidates"][0]

    call = {"name": "write_file", "args": dict(WRITE.arguments)}
    assert first["content"]["parts"] == [{"text": "I write."}, {"functionCall": call}]
    assert second["content"]["parts"] == [{"text": "Done."}]
    assert [(e.key, e.model, e.task, e.number) for e in server.exchanges] == [
        ("secret", "m-1", "t", 0),
        ("secret", "m-1", "t", 1),
    ]


def test_gemini_streams(server: ModelServer) -> None:
    chunks = _events(_ask_gemini(server, "streamGenerateContent?alt=sse", "t"))

    candidates = [chunk["candidates"][0] for chunk in chunks]
    assert [candidate.get("finishReason") for candidate in candidates] == [None, "STOP"]
    assert candidates[1]["content"]["parts"][0]["functionCall"]["name"] == "write_file"
    assert chunks[-1]["usageMetadata"]["totalTokenCount"] > 0


def test_gemini_errors_have_their_status(server: ModelServer) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        _ask_gemini(server, "generateContent", "no key")

    with caught.value as response:
        assert json.load(response)["error"]["status"] == "UNAUTHENTICATED"
