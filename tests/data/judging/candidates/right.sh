# Mends all five.
python3 - <<'PY'
from pathlib import Path
keys, caches = Path("src/cachetools/keys.py"), Path("src/cachetools/__init__.py")
text = keys.read_text()
text = text.replace(
    "    key += tuple(type(v) for _, v in sorted",
    "    key += tuple(type(v) for v in args)\n    key += tuple(type(v) for _, v in sorted",
)
keys.write_text(text)
text = caches.read_text()
text = text.replace("            diffsize = size\n        else:", "            diffsize = size - self.__size[key]\n        else:")
text = text.replace("self.__counter[key] += 1", "self.__counter[key] -= 1")
before, lru, after = text.partition("class LRUCache(Cache):")
after = after.replace(
    "        return cache_getitem(self, key)\n",
    "        value = cache_getitem(self, key)\n        if key in self:\n"
    "            self.__update(key)\n        return value\n",
    1,
)
text = before + lru + after.replace("self.timer() <= link.expires", "self.timer() < link.expires")
caches.write_text(text)
PY
