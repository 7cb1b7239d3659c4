"""Run a function in another thread for the duration of a block."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def meanwhile(work: Callable[[], T]) -> Iterator[Future[T]]:
    """Run `work` in another thread during the block; the block's end waits for the thread.

    Yields:
        The future with what `work` returns.

    Raises:
        Exception: The exception of the block, or else that of `work`.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        done = pool.submit(work)
        yield done
    done.result()
