# Commits a bare repository as ordinary files, which git would discover from inside.
#: refused git directory
git init -q --bare innocent && set_config innocent/config core.fsmonitor "$PAYLOAD; false"
set_config innocent/config core.bare false; set_config innocent/config core.worktree ..
touch innocent/objects/keep innocent/refs/keep
commit
