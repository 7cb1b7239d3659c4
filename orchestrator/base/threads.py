"""Run a function in another thread, during a block or when a block takes too long."""

import threading
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


@contextmanager
def unless_over(seconds: float, give_up: Callable[[], object]) -> Iterator[threading.Event]:
    """Call `give_up` in another thread if the block takes longer than some seconds.

    Yields:
        An event that is set before the call.
    """
    late = threading.Event()

    def act() -> None:
        late.set()
        give_up()

    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
