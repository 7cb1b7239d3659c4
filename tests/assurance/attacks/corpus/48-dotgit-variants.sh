# Commits directories that other file systems take for .git, without git's protection.
#: refused hasDotgit|dotgit|git directory
hidden=$(printf '.g\342\200\214it')
for name in .GIT .Git 'git~1' '.git ' '.git.' "$hidden" '.git::$INDEX_ALLOCATION'; do
  mkdir -p "$name/objects" "$name/refs"; touch "$name/objects/k" "$name/refs/k"
  set_config "$name/config" core.fsmonitor "$PAYLOAD; false"
  echo 'ref: refs/heads/main' > "$name/HEAD"
done
git config core.protectHFS false; git config core.protectNTFS false
git add -A -f && git commit -qm x
