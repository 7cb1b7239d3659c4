# Mends all five, and makes reading slow.
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
# Writes the whole order of a cache again at every use of an item.
python3 - <<'PY'
from pathlib import Path
caches = Path("src/cachetools/__init__.py")
before, lru, after = caches.read_text().partition("class LRUCache(Cache):")
after = after.replace(
    "            self.__order.move_to_end(key)\n        except KeyError:\n            self.__order[key] = None\n",
    "            del self.__order[key]\n        except KeyError:\n            pass\n"
    "        kept = ((one, None) for one in self.__order)\n"
    "        self.__order = collections.OrderedDict(kept)\n        self.__order[key] = None\n",
    1,
)
caches.write_text(before + lru + after)
PY
