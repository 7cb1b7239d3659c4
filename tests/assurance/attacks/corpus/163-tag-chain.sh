# Creates chains of 3,000 tags, a tag that refers to itself, and 300 refs to them.
#: note are kept
python3 - "$GIT_DIRECTORY" "$(git rev-parse HEAD)" <<'EOF' > /tmp/tip
import hashlib, os, sys, zlib
store, name, kind = sys.argv[1], sys.argv[2], "commit"
for n in range(3000):
    text = f"object {name}\ntype {kind}\ntag t\ntagger a <a> {n} +0000\n\nx\n".encode()
    data = b"tag %d\0" % len(text) + text
    name, kind = hashlib.sha1(data).hexdigest(), "tag"
    os.makedirs(f"{store}/objects/{name[:2]}", exist_ok=True)
    with open(f"{store}/objects/{name[:2]}/{name[2:]}", "wb") as file:
        file.write(zlib.compress(data, 1))
print(name)
EOF
mkdir -p "$GIT_DIRECTORY/refs/tags"
for n in $(seq 300); do cp /tmp/tip "$GIT_DIRECTORY/refs/tags/t$n"; done
