# Fills the path of a submodule that the repository really has: `git status` walks into it.
#: repository rich
#: ends success
path=vendor/lib
for attempt in 1 2; do
  mkdir -p $path && git init -q $path && set_config $path/.git/config core.fsmonitor "$PAYLOAD; false"
  [ $attempt = 2 ] || mv vendor vendor-$attempt
done
printf '[submodule "zz"]\n\tpath = %s\n\tignore = none\n' $path > .gitmodules
