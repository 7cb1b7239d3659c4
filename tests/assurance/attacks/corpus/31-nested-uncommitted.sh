# Leaves uncommitted nested repositories: a directory, a pointer file, a link.
for name in sub deep/in/side; do
  git init -q $name && git -C $name commit -q --allow-empty -m x
  set_config $name/.git/config core.fsmonitor "$PAYLOAD; false"
done
mkdir pointed linked
git init -q --bare elsewhere && set_config elsewhere/config core.fsmonitor "$PAYLOAD; false"
mv elsewhere "$GIT_DIRECTORY/"
echo "gitdir: $GIT_DIRECTORY/elsewhere" > pointed/.git
ln -s ../sub/.git linked/.git
