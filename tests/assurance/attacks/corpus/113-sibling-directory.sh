# Commits files under the names of the siblings' worktrees: a merge would write into those.
#: refused reserved for workers' worktrees
mkdir .architect-parallel-1 .architect-parallel-2
echo evil | tee .architect-parallel-1/evil.txt > .architect-parallel-2/evil.txt
git add -f .architect-parallel-1 .architect-parallel-2 && git commit -qm x
