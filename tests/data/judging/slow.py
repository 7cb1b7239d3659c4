"""Print a line for each kind of cache that needs many steps to read one item of many."""

import sys

import cachetools

ITEMS, MOST_STEPS = 500, 50


def main() -> None:
    """Count the calls of functions, not the time: the result is the same on every machine."""
    for kind in ("FIFOCache", "LFUCache", "LRUCache", "RRCache"):
        cache = getattr(cachetools, kind)(ITEMS)
        cache.update((number, number) for number in range(ITEMS))
        steps = 0

        def count(_frame: object, _event: str, _about: object) -> None:
            nonlocal steps
            steps += 1

        sys.setprofile(count)
        cache[ITEMS // 2]
        sys.setprofile(None)
        if steps > MOST_STEPS:
            sys.stdout.write(f"{kind}: reading an item takes too many steps\n")


if __name__ == "__main__":
    main()
