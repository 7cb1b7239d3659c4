"""Find uses of the test runner and of its process in code that is not Python."""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator

from orchestrator.review.judging.tokens import Language, Source, read_source, split

_VARIABLES = re.compile(
    r"(?:^|[^A-Za-z])(?:PYTEST_(?:CURRENT_TEST|XDIST\w*|VERSION|ADDOPTS|PLUGINS)|NODE_TEST_CONTEXT|"
    r"NODE_V8_COVERAGE|JEST_WORKER_ID|VITEST(?:_\w+)?|MOCHA_\w+|TAP_\w+|AVA_PATH|"
    r"ORCHESTRATOR_(?:JUNIT|COVERAGE)|GO_TEST\w*|GOCOVERDIR|NEXTEST\w*|CARGO_(?:TARGET_TMPDIR|BIN_EXE\w*)|"
    r"RUST_TEST\w*|COV_CORE_\w+|COVERAGE_PROCESS_START)(?:$|[^A-Za-z])"
)
_RUNNER_TEXT = re.compile(
    r"(?:^|[^\w])(?:_?pytest|py\.test|unittest|nose2|node:test|vitest|go test|cargo test)"
    r"(?:$|[^\w])"
)


def of_text(said: str, tests: Collection[str]) -> str | None:
    """Return what a text in code names: a test, a runner or a variable of one; None if nothing."""
    if len(said) > 2000:
        return None
    if _VARIABLES.search(said):
        return "reads a variable of a test runner"
    if len(said) < 200 and _RUNNER_TEXT.search(said):
        return "names a test runner"
    if said in tests or any(word in tests for word in re.findall(r"[\w./-]+", said)):
        return "names a test"
    return None


_JS_GLOBALS = (
    "(?:Number|String|Object|Array|Function|Error|Promise|Map|Set|RegExp|Boolean|Symbol|Reflect|"
    "Math|JSON|Date)"
)
_FORBIDDEN: dict[Language, tuple[str, ...]] = {
    "js": (
        r"process \. (?:exit|reallyExit|abort|kill|binding|dlopen|_\w+|exitCode|execArgv)\b",
        r"process \. (?:on|once|addListener|prependListener) \( [\"'`](?:exit|beforeExit|un\w+)",
        r"(?:process|globalThis|global|window) \[",
        r"module \. (?:constructor|parent|children)\b|require \. (?:cache|extensions)\b",
        r"require \. main \. (?!filename)|Module \. (?:_\w+|prototype)",
        r"import \. meta \. (?:vitest|jest)|process \. mainModule",
        r"Error \. (?:prepareStackTrace|stackTraceLimit)|\bError \( [^)]*\) \. stack",
        r"process \. (?:stdout|stderr) \. (?:write|end|_\w+) = |console \. \w+ = [^=]",
        r"(?<![.\w])(?<!\. )(?:assert|expect|describe|it|test|chai|jest|vi)(?: \. \w+)+ = [^=>]",
        r"Object \. (?:assign|definePropert\w+|setPrototypeOf) \( "
        rf"(?:assert|expect|globalThis|global|process|console|module|require|{_JS_GLOBALS})\b",
        r"expect \. extend|(?:globalThis|global|window) \. \w+(?: \. \w+)* = [^=>]",
        rf"(?<!\. ){_JS_GLOBALS}(?: \. prototype)? \. \w+ = [^=>]",
        r"(?<!\. )\b(?:eval|Function) \(|\. constructor \. constructor|__proto__",
        r"arguments \. callee",
        r"(?:require|(?<!\. )import) \( (?:[^\"'` ]|[\"'][^ ]* [^),]|`[^ ]*\$\{)",
    ),
    "go": (
        r"runtime \. (?:Caller|Callers|CallersFrames|FuncForPC|Stack|Goexit|SetFinalizer)\b",
        r"debug \. (?:Stack|PrintStack|SetPanicOnFault|ReadBuildInfo)\b",
        r"flag \. (?:Lookup|VisitAll|Visit|CommandLine)\b|os \. Executable\b",
        r"syscall \. (?:Exit|Exec|Kill|Getppid)\b|os \. (?:Stdout|Stderr|Stdin) = [^=]",
        r"\btesting \. \w+|unsafe \. Pointer",
    ),
    "rust": (
        r"process : : abort \(|env : : current_exe\b|cfg ! \( test|global_allocator|link_section",
        r"panic : : (?:\w+_hook|catch_unwind|resume_unwind)\b|\bset_hook \(|\bcatch_unwind \(",
        r"thread : : current \( \) \. name|libc : : (?:_?exit|abort|kill|raise|atexit|fork)\b",
        r"no_mangle|# \[ ctor\b",
    ),
}
_OUTSIDE_OF_MAIN: dict[Language, str] = {
    "js": r"(?!)",
    "go": r"os \. (?:Args|Exit)\b",
    "rust": r"process : : exit \(|env : : (?:args|args_os)\b",
}
_LOADED: dict[Language, "re.Pattern[str]"] = {
    "js": re.compile(
        r"(?:node:)?(?:test(?:/\w+)?|vm|module|inspector|async_hooks|repl|v8|trace_events)"
        r"|node:diagnostics_channel|@jest/.*|jest.*|vitest.*|mocha|chai|ava|tap|bun:test|@playwright/test"
    ),
    "go": re.compile(
        r"testing(?:/.*)?|internal/.*|unsafe|plugin|C|os/signal/.*|runtime/(?:pprof|trace)"
    ),
    "rust": re.compile(r"(?!)"),
}


def uses_of(text: str, language: Language, tests: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield what the lines of a text use, by comparing its tokens."""
    tokens = [token for token in split(text, language) if token.kind != "comment"]
    joined, starts = "", list[int]()
    for token in tokens:
        # A text is compared only at its beginning, so that words in it are no code.
        is_text = token.kind in ("text", "raw", "template")
        starts.append(len(joined))
        joined += (token.text[:30].replace(" ", "") if is_text else token.text) + " "
    inside = _lines_of_main(text, language) if language != "js" else set[int]()
    is_program = text.startswith("#!")
    patterns = [(pattern, False) for pattern in _FORBIDDEN[language]]
    for pattern, only_outside in (*patterns, (_OUTSIDE_OF_MAIN[language], True)):
        for match in re.finditer(pattern, joined):
            token = tokens[max(0, bisect_right(starts, match.start()) - 1)]
            line = text.count("\n", 0, token.start) + 1
            is_exit = only_outside or "exit" in match[0]
            if token.kind not in ("text", "raw", "template") and not (
                is_exit and (is_program or line in inside)
            ):
                yield line, f"uses `{match[0].replace(' ', '')[:40]}`"
    for number, token in enumerate(tokens):
        if token.kind not in ("text", "raw", "template"):
            if token.kind == "name" and _VARIABLES.fullmatch(token.text):
                yield text.count("\n", 0, token.start) + 1, "reads a variable of a test runner"
            continue
        line = text.count("\n", 0, token.start) + 1
        said = token.text.strip("\"'`")
        before = {item.text for item in tokens[max(0, number - 3) : number]}
        is_loaded = language == "go" or before & {"require", "import", "from"}
        if is_loaded and _LOADED[language].fullmatch(said):
            yield line, f"imports `{said}`"
        elif what := of_text(said, tests):
            yield line, what


def _lines_of_main(text: str, language: Language) -> set[int]:
    """Return the lines of the function `main` of a program."""
    try:
        source: Source = read_source(text, language)
    except ValueError:
        return set()
    if language == "go" and "package main" not in text:
        return set()
    for place in range(len(source.tokens)):
        if source.said(place) in ("func", "fn") and source.said(place + 1) == "main":
            opening = next(
                (item for item in range(place, len(source.tokens)) if source.said(item) == "{"),
                None,
            )
            if opening is not None:
                ends = source.tokens[opening].start, source.tokens[source.ends[opening]].end
                first, last = (text.count("\n", 0, end) + 1 for end in ends)
                return {*range(first, last + 1)}
    return set()
