"""Draw what a run does, with the name of every final state, as SVG in light or dark colours.

The names and their colours come from the code. `docs/check.py` compares `docs/workers.svg` with
this drawing, and rewrites it with `--write`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.faces.web.summaries import badge_of
from orchestrator.state.record.states import RunState

WIDTH, MARGIN = 660, 10
TOP, ROW, BAR = 104, 54, 46
TASK_WIDTH, STATE_X, STATE_WIDTH, KEPT_X = 302, 352, 92, 456
STYLE = """\
svg{color-scheme:light dark}
text{font-family:ui-sans-serif,system-ui,'Segoe UI',Helvetica,Arial,sans-serif;font-size:14px}
text{fill:#1f2937}
.code{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px}
.small{font-size:12.5px;fill:#57606a}.bold{font-weight:600}
.ground{fill:#ffffff}.box{fill:#f6f8fa;stroke:#8c959f;stroke-width:1.2}.line{fill:none;stroke:#8c959f;stroke-width:1.4}
.chip{stroke:none}.word{fill:#ffffff;font-weight:600;text-anchor:middle}
.success{fill:#1a7f37}.warning{fill:#9a6700}.danger{fill:#cf222e}.neutral{fill:#57606a}
@media (prefers-color-scheme:dark){
.ground{fill:#12161c}text{fill:#e6edf3}.small{fill:#9da7b3}.box{fill:#1c2128;stroke:#545d68}.line{stroke:#768390}
.word{fill:#ffffff}.success{fill:#238636}.warning{fill:#7d5a00}.danger{fill:#c93c37}.neutral{fill:#545d68}}"""


@dataclass(frozen=True)
class Row:
    """A worker of the drawing: its task, how it ended, and what is left of it."""

    task: str
    state: str
    why: str
    kept: str


def ended(reason: Reason | None, status: Status = Status.FAILED) -> str:
    """Return the name of the final state of a worker, as tables print it."""
    return WorkerResult(
        worker_id=1, branch="b", model="default", status=status, steps=0, cost=0.0, duration=0.0,
        files_modified=[], worktree_path="/w", reason=reason,
    ).word  # fmt: skip


def rows() -> Sequence[Row]:
    """List the workers of the drawing, one for each final state."""
    own = "its commit, on its branch"
    return (
        Row("claude: add tests to auth.py", ended(None, Status.SUCCESS), "ready to merge", own),
        Row("codex: update the parser", ended(Reason.CHECKS_FAILED, Status.PARTIAL),
            "your check failed", own),
        Row("shell: make test", ended(Reason.AGENT_FAILED), "exit code 2", "its log and files"),
        Row("gemini: rewrite the docs", ended(Reason.TIMEOUT, Status.TIMEOUT),
            "stopped at its deadline", "its files until then"),
        Row("shell: publish, after make test", ended(Reason.DEPENDENCY), "never ran",
            "nothing to keep"),
        Row("shell: make fuzz", ended(Reason.CANCELLED), "you stopped it", "its files until then"),
        Row("aider: fix the typos", RunState.DIED.value, "the run's process was killed",
            "its files; resume goes on"),
    )  # fmt: skip


def draw() -> str:
    """Return the drawing."""
    workers = rows()
    height = TOP + ROW * len(workers) + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="title">',
        '<title id="title">One repository, one container for each worker, one result each: '
        f"{', '.join(row.state for row in workers)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height}" rx="8"/>',
        f'<rect class="box" x="{MARGIN}" y="8" width="{WIDTH - 2 * MARGIN}" height="50" rx="6"/>',
        f'<text class="bold" x="{MARGIN + 14}" y="29">Your repository</text>',
        f'<text class="small" x="{MARGIN + 14}" y="48">Every worker starts from the same commit. '
        "No worker writes to your files, your branch or your .git.</text>",
        f'<text class="small" x="{MARGIN + 42}" y="92">WORKER: own worktree and container</text>',
        f'<text class="small" x="{STATE_X}" y="92">RESULT</text>',
        f'<text class="small" x="{KEPT_X}" y="92">WHY, AND WHAT YOU KEEP</text>',
    ]
    last = TOP + ROW * (len(workers) - 1) + BAR / 2
    parts.append(f'<path class="line" d="M{MARGIN + 16} 58V{last:g}"/>')
    for number, row in enumerate(workers):
        parts += _drawn(row, number + 1, TOP + ROW * number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _drawn(row: Row, number: int, y: int) -> Iterator[str]:
    x, middle = MARGIN + 34, y + BAR / 2
    line = f"M{MARGIN + 16} {middle:g}H{x}M{x + TASK_WIDTH} {middle:g}H{STATE_X}"
    yield f'<path class="line" d="{line}"/>'
    yield f'<rect class="box" x="{x}" y="{y}" width="{TASK_WIDTH}" height="{BAR}" rx="6"/>'
    yield f'<text class="bold" x="{x + 10}" y="{middle + 5:g}">{number}</text>'
    yield f'<text class="code" x="{x + 30}" y="{middle + 4.5:g}">{escape(row.task)}</text>'
    yield (
        f'<rect class="chip {badge_of(row.state).tone}" x="{STATE_X}" y="{middle - 13:g}" '
        f'width="{STATE_WIDTH}" height="26" rx="13"/>'
    )
    centre = STATE_X + STATE_WIDTH / 2
    yield f'<text class="word" x="{centre:g}" y="{middle + 5:g}">{row.state}</text>'
    yield f'<text x="{KEPT_X}" y="{middle - 4:g}">{escape(row.why)}</text>'
    yield f'<text class="small" x="{KEPT_X}" y="{middle + 14:g}">{escape(row.kept)}</text>'
