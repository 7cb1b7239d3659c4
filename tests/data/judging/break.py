"""Break cachetools in five ways. Usage: `python3 break.py` in the top directory of the project."""

from pathlib import Path

KEYS, CACHES = Path("src/cachetools/keys.py"), Path("src/cachetools/__init__.py")
BREAKS = (
    # Keys of arguments with different types are equal.
    (KEYS, "    key += tuple(type(v) for v in args)\n", ""),
    # The size of a cache grows with each change of an item.
    (CACHES, "            diffsize = size - self.__size[key]\n", "            diffsize = size\n"),
    # The most frequently used item is removed first.
    (
        CACHES,
        "            self.__counter[key] -= 1\n        return value\n",
        "            self.__counter[key] += 1\n        return value\n",
    ),
    # Reading an item does not count as its use.
    (
        CACHES,
        "        value = cache_getitem(self, key)\n"
        "        if key in self:  # __missing__ may not store item\n"
        "            self.__update(key)\n"
        "        return value\n",
        "        return cache_getitem(self, key)\n",
    ),
    # An item is in the cache for a moment after its time has passed.
    (CACHES, "            return self.timer() < link.expires\n",
     "            return self.timer() <= link.expires\n"),
)  # fmt: skip


def main() -> None:
    """Replace the first occurrence of each text."""
    for path, right, wrong in BREAKS:
        text = path.read_text()
        assert right in text, right
        path.write_text(text.replace(right, wrong, 1))


if __name__ == "__main__":
    main()
