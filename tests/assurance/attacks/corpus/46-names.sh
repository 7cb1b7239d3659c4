# Uses file names with newlines, dashes, invalid UTF-8, control sequences, quotes, shell and JSON syntax.
cat > /tmp/names.py <<'END'
import os, sys
mark = sys.argv[1].encode()
names = [b"x" * 255, b"-rf", b"--upload-pack=x", b'"},{"worker_id":1,"status":"success', b" ", b"*",
  b":(glob)x", b"~", b"it's", b'a"b', b"new\nline", b"a\n?? fake.txt", b"bad\377\376utf8", b"tab\tx",
  b"escape\033]0;title\007\033[2J", b"c1\302\2332J", b"bidi\342\200\256gnp.exe", b"\\back", b"cr\rx"]
shell = b"printf %s | base64 -d | sh" % __import__("base64").b64encode(b"touch " + mark)
names += [form % shell.replace(b"/", b"") for form in (b"$(%s)", b"`%s`", b";%s;", b"|%s")]
for name in names:
    open(name[:255], "w").close()
END
python3 /tmp/names.py "$MARK"
commit
python3 -c 'open(b"later\377", "w"); open("-n", "w")'
