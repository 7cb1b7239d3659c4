# Commits a .gitmodules with a command, with URLs and paths that look like options, and as a link.
#: refused gitmodules|submodule|nested
printf '[submodule "a"]\n\tpath = m\n\turl = -u./evil\n\tupdate = !%s\n' "$PAYLOAD" > .gitmodules
printf '[submodule "../../x"]\n\tpath = ../../x\n\turl = ext::%s\n' "$PAYLOAD" >> .gitmodules
git update-index --add --cacheinfo "160000,$(git rev-parse HEAD),m"
git add .gitmodules && git commit -qm x
rm .gitmodules && ln -s other .gitmodules && commit
