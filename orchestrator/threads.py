"""Do one thing in a thread beside another, and be done with both."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Run `work` beside the body; it has ended when the body is left.

    Raises:
        Exception: What the body raised, or else what `work` did.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        done = pool.submit(work)
        yield
    done.result()
