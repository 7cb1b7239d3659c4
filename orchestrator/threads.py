"""Run a function in another thread for the duration of a block."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Run `work` in another thread during the block; the block's end waits for the thread.

    Raises:
        Exception: The exception of the block, or else that of `work`.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        done = pool.submit(work)
        yield
    done.result()
