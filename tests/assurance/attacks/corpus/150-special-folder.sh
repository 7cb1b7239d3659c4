# Uses the paths to which the harvest moves nested repositories, with FIFOs and git directories.
mkdir -p .git-of-a-nested-repository/sub .git-of-a-nested-repository-2
echo x | tee .git-of-a-nested-repository/f > .git-of-a-nested-repository/sub/f
git add -f .git-of-a-nested-repository; git commit -qm aside
rm .git-of-a-nested-repository/f; mkfifo .git-of-a-nested-repository/f .git-of-a-nested-repository-2/f
git init -q .git-of-a-nested-repository/sub
set_config .git-of-a-nested-repository/sub/.git/config core.fsmonitor "$PAYLOAD; false"
ln -s "$TRAP" .git-of-a-nested-repository-3
mkdir -p a/.git; set_config a/.git/config core.fsmonitor "$PAYLOAD; false"
chmod 000 .git-of-a-nested-repository-2 .git-of-a-nested-repository
