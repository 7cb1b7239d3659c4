"""Split text into lines as programs do that write it: `str.splitlines` finds more line ends."""


def split_lines(text: str) -> list[str]:
    r"""Return the lines of a text that end with `\n` or `\r\n`.

    `str.splitlines` also splits at eight other characters, such as U+2028 and form feeds, which can
    be part of a value, a file name or a branch name.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def lines_of_output(text: str) -> list[str]:
    r"""Return the lines of a program's output, in which `\r` begins a line again."""
    return split_lines(text.replace("\r\n", "\n").replace("\r", "\n"))
