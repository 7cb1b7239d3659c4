# Commits a pack of a few kilobytes with a delta that unpacks to 3 GiB in memory.
#: refused index-pack|harvest failed
cat > /tmp/pack.py <<'END'
import hashlib, struct, subprocess, sys, zlib
BASE, SIZE = b"\0" * (1 << 20), 3 << 30
def header(kind, size):
    first, size = (kind << 4) | (size & 15), size >> 4
    out = bytearray()
    while size: out.append(first | 128); first, size = size & 127, size >> 7
    return bytes(out + bytes([first]))
def number(value):
    out = bytearray()
    while value > 127: out.append(value & 127 | 128); value >>= 7
    return bytes(out + bytes([value]))
digest = hashlib.sha1(b"blob %d\0" % SIZE)
for _ in range(SIZE // len(BASE)): digest.update(BASE)
base_id = hashlib.sha1(b"blob %d\0" % len(BASE) + BASE).digest()
copy = bytes([0x80 | 0x40, 0x10])  # offset 0, size 0x100000
delta = number(len(BASE)) + number(SIZE) + copy * (SIZE // len(BASE))
assert copy[1] << 16 == len(BASE)
pack = b"PACK" + struct.pack(">II", 2, 2) + header(3, len(BASE)) + zlib.compress(BASE)
offset = len(pack)
pack += header(7, len(delta)) + base_id + zlib.compress(delta)
crcs = [zlib.crc32(pack[12:offset]), zlib.crc32(pack[offset:])]
trailer = hashlib.sha1(pack).digest()
entries = sorted([(base_id, crcs[0], 12), (digest.digest(), crcs[1], offset)])
index = b"\xfftOc" + struct.pack(">I", 2)
index += b"".join(struct.pack(">I", sum(e[0][0] <= n for e in entries)) for n in range(256))
index += b"".join(e[0] for e in entries) + b"".join(struct.pack(">I", e[1]) for e in entries)
index += b"".join(struct.pack(">I", e[2]) for e in entries) + trailer
name = sys.argv[1] + "/objects/pack/pack-" + trailer.hex()
open(name + ".pack", "wb").write(pack + trailer)
open(name + ".idx", "wb").write(index + hashlib.sha1(index).digest())
print(digest.hexdigest(), base_id.hex())
END
set -- $(python3 /tmp/pack.py "$GIT_DIRECTORY")
tree=$(printf '100644 blob %s\tbig\n100644 blob %s\tbase\n' "$1" "$2" | git mktree --missing)
bomb=$(git commit-tree "$tree" -p HEAD -m bomb)
git update-ref HEAD "$(git commit-tree "HEAD^{tree}" -p "$bomb" -m 'nothing to see')"
