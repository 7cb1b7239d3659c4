"""The page of the documentation with the tables of the benchmarks."""

from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "performance.md"


def with_tables(page: str, name: str, text: str) -> str:
    """Return the page with new tables in the part of one benchmark, which may be empty before.

    Raises:
        ValueError: The page has no part for this benchmark.
    """
    before, begin, rest = page.partition(f"<!-- measured: {name} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    if not end:
        raise ValueError(f"{PAGE.name} has no part `{name}`")
    return f"{before}{begin}{text}\n{end}{after}"
