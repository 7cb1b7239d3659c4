# Replaces ref lists and the files of unfinished git operations by FIFOs and links to the host.
#: note git index is unreadable
cd "$GIT_DIRECTORY"
rm -f packed-refs index ORIG_HEAD; mkdir -p logs/refs rebase-merge worktrees/x refs/stash refs/tags
mkfifo packed-refs index MERGE_HEAD rebase-merge/head-name worktrees/x/HEAD refs/tags/fifo logs/refs/stash
for name in CHERRY_PICK_HEAD REVERT_HEAD REBASE_HEAD ORIG_HEAD refs/tags/link refs/heads/link; do
  ln -sf "$TRAP/secret" "$name"
done
ln -s "$TRAP" refs/trap; ln -s .. refs/circle; ln -s "$TRAP/below" logs/below
