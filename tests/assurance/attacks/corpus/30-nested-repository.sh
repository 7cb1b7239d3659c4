# Commits a nested repository as a submodule; its configuration and attributes name programs.
#: refused submodule or nested repository: sub
git init -q sub && git -C sub commit -q --allow-empty -m x
set_config sub/.git/config core.fsmonitor "$PAYLOAD; false"
program sub/.git/hooks/post-index-change
printf '[submodule "s"]\n\tpath = sub\n\turl = ./x\n\tignore = none\n' > .gitmodules
commit
