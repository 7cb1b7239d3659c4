"""Rewrite the option parser's error messages in the style of this program."""

import re
from difflib import get_close_matches

import typer

_IN_OUR_WORDS = {
    "Value error, ": "",
    r"Input should be a valid integer\b.*": "must be a whole number",
    r"Input should be greater than or equal to (\S+)": r"must be at least \1",
}


def usage_message(error: typer.TyperException) -> tuple[str, str | None]:
    """Return the error message and the hint for an invalid command line."""
    context = getattr(error, "ctx", None)
    unknown = getattr(error, "option_name", None)
    if unknown and "No such option" in error.message:
        return f"unknown option: `{unknown}`", _suggestion(unknown, context)
    message = re.sub(r"'([^']*)'", r"`\1`", error.format_message().rstrip("."))
    for raw, ours in _IN_OUR_WORDS.items():
        message = re.sub(raw, ours, message)
    return message[:1].lower() + message[1:], _help(context)


def _suggestion(option: str, context: typer.Context | None) -> str | None:
    known = [name for param in context.command.params for name in param.opts] if context else []
    close = get_close_matches(option, known, n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else _help(context)


def _help(context: typer.Context | None) -> str | None:
    return f"run `{context.command_path} --help` for the options" if context else None
