# Commits a tree with .git/config, .., a name with a slash, and a duplicate name.
#: refused hasDotgit|hasDotdot|fullPathname|duplicateEntries|index-pack|harvest failed
blob=$(printf '[core]\n\tfsmonitor = %s; false\n' "$PAYLOAD" | git hash-object -w --stdin)
entry() { printf '%s %s\0' "$1" "$2"; printf %s "$3" | python3 -c 'import sys
sys.stdout.buffer.write(bytes.fromhex(sys.stdin.read()))'; }
write_tree() { git hash-object -t tree -w --literally --stdin; }
inner=$(entry 100644 config "$blob" | write_tree)
outer=$({ entry 40000 .git "$inner"; entry 40000 .. "$inner"; entry 100644 a/b "$blob"
  entry 100644 a.txt "$blob"; entry 100644 a.txt "$blob"; } | write_tree)
git update-ref HEAD "$(git commit-tree "$outer" -p HEAD -m evil)"
rm -f "$GIT_DIRECTORY/index"
