# Mends all five, in other words: it conflicts with other right candidates.
python3 - <<'PY'
from pathlib import Path
keys, caches = Path("src/cachetools/keys.py"), Path("src/cachetools/__init__.py")
text = keys.read_text()
text = text.replace(
    "    key += tuple(type(v) for _, v in sorted(kwargs.items()))\n",
    "    values = (*args, *(value for _, value in sorted(kwargs.items())))\n"
    "    key += tuple(map(type, values))\n",
)
keys.write_text(text)
text = caches.read_text()
text = text.replace("            diffsize = size\n        else:", "            diffsize = size - self._Cache__size[key]\n        else:")
text = text.replace("self.__counter[key] += 1", "self.__counter[key] = self.__counter[key] - 1")
before, lru, after = text.partition("class LRUCache(Cache):")
after = after.replace(
    "        return cache_getitem(self, key)\n",
    "        found = cache_getitem(self, key)\n        if key in self:\n"
    "            self.__order.move_to_end(key)\n        return found\n",
    1,
)
text = before + lru + after.replace(
    "return self.timer() <= link.expires", "return link.expires > self.timer()"
)
caches.write_text(text)
PY
