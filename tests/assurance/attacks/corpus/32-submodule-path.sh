# Writes files into the path of an existing submodule, which `git status` enters.
#: repository rich
#: ends success
path=vendor/lib
for attempt in 1 2; do
  mkdir -p $path && git init -q $path && set_config $path/.git/config core.fsmonitor "$PAYLOAD; false"
  [ $attempt = 2 ] || mv vendor vendor-$attempt
done
printf '[submodule "zz"]\n\tpath = %s\n\tignore = none\n' $path > .gitmodules
