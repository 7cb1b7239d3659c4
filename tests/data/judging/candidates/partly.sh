# Mends the keys and the sizes, and forgets the rest.
sed -i 's/^    key += tuple(type(v) for _, v/    key += tuple(type(v) for v in args)\n&/' src/cachetools/keys.py
sed -i '0,/            diffsize = size$/s//            diffsize = size - self.__size[key]/' src/cachetools/__init__.py
