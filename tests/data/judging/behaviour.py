"""Print how the caches behave, so that candidates with the same behaviour can be found."""

import sys

import cachetools
from cachetools import keys


def main() -> None:
    """Use each kind of cache, and print what is left in it."""
    for kind in ("FIFOCache", "LFUCache", "LRUCache"):
        cache = getattr(cachetools, kind)(3)
        for number in (1, 2, 1, 3, 2, 4, 1, 5):
            cache.get(number)
            cache[number] = number
        sys.stdout.write(f"{kind} {sorted(cache)} {cache.currsize}\n")
    sys.stdout.write(f"equal keys: {keys.typedkey(2) == keys.typedkey(2.0)}\n")


if __name__ == "__main__":
    main()
