# Commits files under the names of other workers' worktrees, where a merge would write them.
#: refused reserved for workers' worktrees
mkdir .architect-parallel-1 .architect-parallel-2
echo evil | tee .architect-parallel-1/evil.txt > .architect-parallel-2/evil.txt
git add -f .architect-parallel-1 .architect-parallel-2 && git commit -qm x
