"""Which bodies of calls with limits are passed on, and what is set aside for them."""

import copy
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.text.redact import Redactor
from orchestrator.network.broker.accounts import Account, RefusedError
from orchestrator.network.broker.bodies import MOST_VALUES, BadRequestError, Request
from orchestrator.network.broker.calls import Call, find_call, request_headers
from orchestrator.network.broker.grant import Grant
from orchestrator.network.broker.ledger import Ledger

RECORDED = Path(__file__).parents[2] / "data" / "agent_requests"
PATHS = {
    "chat": "/openai/v1/chat/completions",
    "responses": "/openai/v1/responses",
    "messages": "/anthropic/v1/messages",
    "gemini": "/gemini/v1beta/models/gemini-2.5-pro:generateContent",
}
MODELS = {"chat": "gpt-4o", "responses": "gpt-4o", "messages": "claude-sonnet-4-5"}
PROMPT: dict[str, dict[str, Any]] = {
    "chat": {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]},
    "responses": {"model": "gpt-4o", "input": [{"role": "user", "content": "hi"}]},
    "messages": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "hi"}],
    },
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}
"""A body of each API that is allowed."""


def call_of(flavor: str) -> Call:
    call = find_call("POST", PATHS[flavor])
    assert call is not None
    return call


def checked(flavor: str, body: object) -> Request:
    """Return the request of a worker with limits."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = Request.read(call_of(flavor), raw, unique=True)
    request.check_fields()
    return request


def account(tmp_path: Path, **limits: Any) -> Account:
    grant = Grant(ledger="1", token="", upstreams={}, **limits)
    return Account(grant, Ledger(tmp_path / "ledger"), Redactor({}))


TOOL = {"chat": {"type": "web_search"}, "responses": {"type": "code_interpreter"},
        "messages": {"type": "web_search_20250305", "name": "web_search"},
        "gemini": {"googleSearch": {}}}  # fmt: skip
COSTLY: list[tuple[str, dict[str, Any], str]] = [
    *((flavor, {"unknown": 1}, "unknown") for flavor in PATHS),
    *((flavor, {"tools": [tool]}, "tools.0") for flavor, tool in TOOL.items()),
    *((flavor, {name: ["other"]}, name) for flavor in PATHS
      for name in ("models", "fallbacks", "plugins", "provider", "route", "Model", "MODEL")),
    *(("chat", {name: value}, name) for name, value in {
        "max_tokens": -1, "max_completion_tokens": 1.5, "n": 129, "N": 2, "best_of": 9,
        "prompt": ["a"], "prediction": {"type": "content", "content": "x"}, "audio": {},
        "modalities": ["text", "audio"], "service_tier": "priority", "web_search_options": {},
        "Max_Tokens": 1, "max_output_tokens": 1, "stream_options": {"x": 1}, "store": 1,
        "extra_body": {}, "functions": [{"name": "a", "url": "b"}],
    }.items()),
    *(("responses", {name: value}, name) for name, value in {
        "previous_response_id": "resp_1", "conversation": "conv_1", "prompt": {"id": "pmpt_1"},
        "background": True, "service_tier": "fast", "max_tokens": 1, "mcp": [], "modalities": [],
        "include": ["web_search_call.results"], "context_management": [], "n": 2,
    }.items()),
    ("responses", {"tools": [{"type": "mcp", "server_url": "https://x"}]}, "tools.0.type"),
    ("responses", {"tools": [{"type": "file_search"}]}, "tools.0.type"),
    ("responses", {"tools": [{"type": "computer_use_preview"}]}, "tools.0.type"),
    ("responses", {"tools": [{"type": "image_generation"}]}, "tools.0.type"),
    ("responses", {"tools": [{"type": "namespace", "name": "a", "tools": [
        {"type": "web_search"}]}]}, "tools.0.tools.0.type"),
    ("responses", {"input": [{"type": "additional_tools", "tools": [{"type": "web_search"}]}]},
     "input.0.tools.0.type"),
    ("responses", {"input": [{"type": "item_reference", "id": "rs_1"}]}, "input.0.type"),
    ("responses", {"input": [{"role": "user", "content": [
        {"type": "input_file", "file_id": "f"}]}]}, "input.0.content.0.type"),
    ("responses", {"input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": "https://x/?data"}]}]}, "input.0.content.0.image_url"),
    ("chat", {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
     "messages.0.content.0.type"),
    ("chat", {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "http://x/"}}]}]},
     "messages.0.content.0.image_url.url"),
    ("chat", {"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, "messages.0.audio"),
    ("messages", {"mcp_servers": []}, "mcp_servers"),
    ("messages", {"container": "c"}, "container"),
    ("messages", {"speed": "fast"}, "speed"),
    ("messages", {"inference_geo": "us"}, "inference_geo"),
    ("messages", {"service_tier": "priority"}, "service_tier"),
    ("messages", {"system": [{"type": "text", "text": "a",
                              "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
     "system.0.cache_control.ttl"),
    ("messages", {"context_management": {"edits": [{"type": "compact_20260112"}]}},
     "context_management.edits.0.type"),
    ("messages", {"tools": [{"type": "code_execution_20250825", "name": "x"}]}, "tools.0.type"),
    ("messages", {"messages": [{"role": "user", "content": [
        {"type": "document", "source": {"type": "file", "file_id": "f"}}]}]},
     "messages.0.content.0.type"),
    ("messages", {"messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "url", "url": "https://x/?data"}}]}]},
     "messages.0.content.0.source"),
    ("gemini", {"cachedContent": "c"}, "cachedContent"),
    ("gemini", {"cached_content": "c"}, "cached_content"),
    ("gemini", {"model": "models/gemini-3-pro"}, "model"),
    ("gemini", {"tools": [{"code_execution": {}}]}, "tools.0"),
    ("gemini", {"generationConfig": {"candidateCount": 1000}}, "generationConfig.candidateCount"),
    ("gemini", {"generation_config": {"responseModalities": ["IMAGE"]}}, "generation_config"),
    ("gemini", {"generationConfig": {"speechConfig": {}}}, "generationConfig.speechConfig"),
    ("gemini", {"contents": [{"parts": [{"fileData": {"fileUri": "gs://x"}}]}]},
     "contents.0.parts.0.fileData"),
    ("gemini", {"contents": [{"parts": [{"inlineData": {"mimeType": "video/mp4", "data": ""}}]}]},
     "contents.0.parts.0.inlineData"),
]  # fmt: skip


@pytest.mark.parametrize(("flavor", "changed", "field"), COSTLY)
def test_field_that_could_cost_more_is_refused_with_its_name(
    flavor: str, changed: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadRequestError, match=f"`{field}") as caught:
        checked(flavor, PROMPT[flavor] | changed)
    assert caught.value.code == "field_not_allowed"


@pytest.mark.parametrize(
    ("flavor", "body", "field"),
    [
        ("chat", b'{"model": "gpt-4o", "messages": [], "n": 1, "n": 9}', "n"),
        ("chat", b'{"model": "gpt-4o", "messages": [], "n": 1, "\\u006e": 9}', "n"),
        ("chat", b'{"model": "gpt-4o", "model": "o1"}', "model"),
        ("chat", b'{"model": "gpt-4o", "max_tokens": 1, "max_completion_tokens": 9}', "max_tokens"),
        ("gemini", b'{"generationConfig": {"topK": 1, "topK": 2}}', "topK"),
        ("gemini", b'{"generationConfig": {"maxOutputTokens": 1, "max_output_tokens": 99}}', ""),
        ("gemini", b'{"generationConfig": {}, "generation_config": {"candidateCount": 8}}', ""),
    ],
)
def test_field_has_one_meaning(flavor: str, body: bytes, field: str) -> None:
    with pytest.raises(BadRequestError, match=f"`{field}"):
        checked(flavor, body)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"model": "gpt-4o", "a": [' + b"[]," * 3_000_000 + b"[]]}",
        b'{"model": "gpt-4o", "a": ' + b"[" * 50_000_000 + b"]" * 50_000_000 + b"}",
        b'{"model": "gpt-4o", "a": {' + b'"":0,' * 2_000_000 + b'"":0}}',
        b'{"model": "gpt-4o", "a": "' + b'\\"' * 5_000_000,
        b'{"model": "gpt-4o", "a": NaN}',
        b'{"model": "gpt-4o", "a": ' + b"9" * 1_000_000 + b"}",
        b"\xff\xfe{\x00}\x00",
        b'{"model": "gpt-4o"}{"model": "o1"}',
    ],
    ids=["nested", "lists", "very nested", "names", "open text", "nan", "number", "utf-16", "two"],
)
def test_body_is_refused_before_it_needs_memory(body: bytes) -> None:
    with pytest.raises(BadRequestError):
        checked("chat", body)


@pytest.mark.parametrize("values", [b"[],", b'{"":0},', b"0,"])
def test_number_of_values_is_limited_before_they_are_parsed(values: bytes) -> None:
    with pytest.raises(BadRequestError) as caught:
        checked("chat", b'{"model": "gpt-4o", "a": [' + values * (MOST_VALUES + 1) + b"0]}")
    assert caught.value.status == 413


def test_marks_in_texts_are_no_values() -> None:
    text = '[{",:\\"' * 300_000
    body = PROMPT["chat"] | {"messages": [{"role": "user", "content": text}]}
    assert checked("chat", body).body["messages"][0]["content"] == text


def test_half_of_a_character_is_replaced() -> None:
    raw = b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "a\\ud83d"}]}'
    assert checked("chat", raw).body["messages"][0]["content"] == "a?"


RECORDINGS = [
    pytest.param(entry["path"], entry["body"], id=f"{file.stem}-{number}")
    for file in sorted(RECORDED.glob("*.json"))
    for number, entry in enumerate(json.loads(file.read_text()))
]


@pytest.mark.parametrize(("path", "body"), RECORDINGS)
def test_recorded_calls_of_agents_are_passed_on_as_they_are(path: str, body: Any) -> None:
    call = find_call("POST", f"/api{path}")
    assert call is not None
    request = Request.read(call, json.dumps(body).encode(), unique=True)
    request.check_fields()
    assert json.loads(request.encode()) == body


def test_both_spellings_of_google_are_passed_on_as_one() -> None:
    body = PROMPT["gemini"] | {
        "system_instruction": {"parts": [{"text": "be brief"}]},
        "generation_config": {"max_output_tokens": 9, "topK": 2},
        "tools": [{"function_declarations": [{"name": "a", "parameters": {"a_b": 1}}]}],
    }
    assert checked("gemini", body).body == PROMPT["gemini"] | {
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "generationConfig": {"maxOutputTokens": 9, "topK": 2},
        "tools": [{"functionDeclarations": [{"name": "a", "parameters": {"a_b": 1}}]}],
    }


@pytest.mark.parametrize("model", ["gpt-4o:online", "gpt-4o@preset/x", "gpt-4o ", "gpt-4o,o1"])
def test_endings_of_models_that_cost_more_have_no_price(tmp_path: Path, model: str) -> None:
    limited = account(tmp_path, budget=1.0)
    request = Request.read(
        call_of("chat"), json.dumps(PROMPT["chat"] | {"model": model}).encode(), unique=True
    )
    with pytest.raises(RefusedError, match="no price"):
        limited.set_aside(request)


def test_images_cost_tokens_whatever_their_size(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    body = PROMPT["chat"] | {"messages": [{"role": "user", "content": [image, image]}]}
    limited = account(tmp_path, tokens=1_000_000)
    limited.set_aside(checked("chat", body | {"max_tokens": 1}))
    assert limited.ledger.spent.most_tokens > 100_000


def test_limit_of_an_answer_is_spelled_as_the_server_knows_it(tmp_path: Path) -> None:
    for path, given, name in (
        ("/openai/v1/chat/completions", {}, "max_completion_tokens"),
        ("/openai/v1/chat/completions", {"max_tokens": 9}, "max_tokens"),
        ("/deepseek/chat/completions", {}, "max_tokens"),
        ("/deepseek/chat/completions", {"max_completion_tokens": 9}, "max_tokens"),
        ("/api/v1/chat/completions", {"max_completion_tokens": 9}, "max_tokens"),
    ):
        call = find_call("POST", path)
        assert call is not None
        request = Request.read(call, json.dumps(PROMPT["chat"] | given).encode(), unique=True)
        account(tmp_path, tokens=100_000).set_aside(request)
        limits = {key: value for key, value in request.body.items() if key.startswith("max_")}
        assert limits == {name: given.get(next(iter(given), ""), 32_000)}


@pytest.mark.parametrize(
    ("tokens", "thinking", "sent"),
    [
        (3000, {"type": "enabled", "budget_tokens": 31_999}, "below the limit"),
        (3000, {"type": "enabled", "budget_tokens": 1024}, 1024),
        (50_000, {"type": "enabled", "budget_tokens": 31_999}, 31_999),
        (1000, {"type": "enabled", "budget_tokens": 31_999}, "refused"),
        # Thinking between calls of tools may be longer than an answer.
        (3000, {"type": "enabled", "budget_tokens": 64_000}, 64_000),
        (1000, {"type": "enabled", "budget_tokens": 10**400}, 10**400),
        (1000, {"type": "enabled"}, None),
        (1000, {"type": "enabled", "budget_tokens": None}, None),
        (1000, {"type": "adaptive"}, None),
        (1000, {"type": "disabled", "budget_tokens": 2000}, 2000),
    ],
)
def test_thinking_is_shortened_with_the_answer(
    tmp_path: Path, tokens: int, thinking: dict[str, Any], sent: object
) -> None:
    raw = json.dumps(PROMPT["messages"] | {"max_tokens": 32_000, "thinking": thinking}).encode()
    request = Request.read(call_of("messages"), raw, unique=True)
    limited = account(tmp_path, tokens=tokens)
    if sent == "refused":
        with pytest.raises(RefusedError, match="too little of the worker's budget") as caught:
            limited.set_aside(request)
        assert (caught.value.status, caught.value.code) == (402, "budget_exceeded")
        assert limited.ledger.spent.refused == {"budget"}
        return
    limited.set_aside(request)
    body = json.loads(request.encode())
    assert body["max_tokens"] < tokens
    found = body["thinking"].get("budget_tokens")
    assert found == (body["max_tokens"] - 1 if sent == "below the limit" else sent)


@pytest.mark.parametrize(
    "thinking", ["enabled", 7, None, [], {}, {"type": ["enabled"], "budget_tokens": 2000},
                 {"type": "enabled", "budget_tokens": "2000"},
                 {"type": "enabled", "budget_tokens": {"a": 1}}],
)  # fmt: skip
def test_thinking_of_another_form_is_not_shortened(thinking: object) -> None:
    body = PROMPT["messages"] | {"thinking": copy.deepcopy(thinking)}
    request = Request(call_of("messages"), copy.deepcopy(body), "claude-sonnet-4-5")
    assert request.limit_answer(lambda made: made <= 50) == 50
    assert request.body == body | {"max_tokens": 50}


def random_bodies(flavor: str, count: int) -> Iterator[dict[str, Any]]:
    """Yield bodies, made of an allowed one by changes of names, values and places."""
    chance = random.Random(f"{flavor} 20261125")
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "n",
             "candidateCount", "candidate_count", "generationConfig", "generation_config", "models",
             "tools", "stream", "previous_response_id", "service_tier", "Max_Tokens", "model",
             "messages", "input", "contents", "thinking", "reasoning", "temperature")  # fmt: skip
    values = (0, 1, 7, -3, 128, 129, 10**6, 10**30, 1.5, "7", True, None, [], {}, "gpt-4o",
              "x" * 99, {"maxOutputTokens": 50_000}, {"max_output_tokens": 9, "candidateCount": 8},
              {"candidate_count": 3}, [{"type": "web_search"}], [{"role": "user", "content": "y"}],
              {"type": "enabled", "budget_tokens": 2000}, "priority")  # fmt: skip
    for _ in range(count):
        body = copy.deepcopy(PROMPT[flavor])
        for _ in range(chance.choice((0, 1, 1, 2, 3))):
            body[chance.choice(names)] = copy.deepcopy(chance.choice(values))
        yield body


def billed(body: dict[str, Any]) -> tuple[int, int]:
    """Return the input and output tokens that a provider could bill for a body, at the most.

    The provider reads as leniently as any: it follows every limit that it knows in any spelling,
    and of several the highest.
    """
    known: dict[str, list[Any]] = {"max": [], "n": []}
    waiting: list[Any] = [body]
    while waiting:
        for name, value in waiting.pop().items():
            plain = name.lower().replace("_", "")
            if plain in ("maxtokens", "maxcompletiontokens", "maxoutputtokens"):
                known["max"].append(value)
            if plain in ("n", "candidatecount"):
                known["n"].append(value)
            if plain == "generationconfig" and isinstance(value, dict):
                waiting.append(value)
    most = [int(value) for value in known["max"] if isinstance(value, int | float)]
    count = [int(value) for value in known["n"] if isinstance(value, int | float)]
    texts = [value for value in body.values() if isinstance(value, str)]
    return sum(map(len, texts)), max(most, default=10**9) * max([1, *count])


@pytest.mark.parametrize("flavor", PATHS)
def test_a_body_is_refused_or_its_worst_cost_is_set_aside(flavor: str, tmp_path: Path) -> None:
    passed, why = 0, []
    for number, body in enumerate(random_bodies(flavor, 800)):
        (tmp_path / str(number)).mkdir()
        limited = account(tmp_path / str(number), tokens=10**7, budget=100.0)
        try:
            request = Request.read(call_of(flavor), json.dumps(body).encode(), unique=True)
            limited.set_aside(request)
        except (BadRequestError, RefusedError) as error:
            why.append(str(error))
            continue
        finally:
            # Other tests of the process need descriptors below 1,024.
            os.close(limited.ledger._file)
        passed += 1
        given, made = billed(json.loads(request.encode()))
        assert limited.ledger.spent.most_tokens >= given + made, body
        assert limited.ledger.spent.most_cost > 0
    others = (
        "no price is known",
        "too little of the worker's budget",
        "the request's body names no",
    )
    assert all("`" in text or text.startswith(others) for text in why)
    assert passed > 20
    assert len(why) > 200


def test_headers_are_listed() -> None:
    given = {
        "OpenAI-Organization": "org", "OpenAI-Project": "p", "anthropic-version": "1",
        "X-Stainless-Lang": "js", "x-stainless-custom": "1", "anthropic-workspace": "w",
        "anthropic-beta": "claude-code-20250219, fast-mode-2026-02-01,context-1m-2025-08-07",
        "X-Goog-User-Project": "p", "Idempotency-Key": "k", "Authorization": "Bearer t",
    }  # fmt: skip
    rest = {"Accept-Encoding": "identity", "x-goog-api-key": "key"}
    names = {"anthropic-version": "1", "X-Stainless-Lang": "js"}
    assert request_headers(given, "key", is_limited=False) == rest | names | {
        "anthropic-beta": given["anthropic-beta"]
    }
    assert request_headers(given, "key", is_limited=True) == rest | names | {
        "anthropic-beta": "claude-code-20250219,context-1m-2025-08-07"
    }
