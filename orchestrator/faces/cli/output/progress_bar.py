"""A bar on a terminal that shows how much of a batch is done."""

from typing import IO, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from orchestrator.faces.cli.output.live_table import REFRESH, ForgivingStream


class ProgressBar:
    """The bar, which is gone at the end."""

    def __init__(self, stream: IO[str], total: int) -> None:
        """Show the bar on a stream."""
        self._progress = Progress(
            BarColumn(),
            TextColumn("{task.completed} of {task.total}: {task.description}"),
            TimeRemainingColumn(),
            console=Console(file=cast("IO[str]", ForgivingStream(stream)), highlight=False),
            refresh_per_second=REFRESH,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("", total=total)
        self._progress.start()

    def update(self, done: int, text: str) -> None:
        """Show the number of what is done, and a text."""
        self._progress.update(self._task, completed=done, description=text)

    def end(self) -> None:
        """Remove the bar."""
        self._progress.stop()
