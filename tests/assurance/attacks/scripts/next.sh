# What an ordinary user does next, in each directory given; says what hangs, and gives up.
q() {
  timeout 20 "$@" > /dev/null 2>&1 < /dev/null
  [ $? != 124 ] || { echo "hangs in $PWD: $*"; exit 0; }
}
export GIT_TERMINAL_PROMPT=0 GIT_EDITOR=true
for directory; do
  cd "$directory" || continue
  q git status; q git diff; q git diff HEAD~1; q git log -p -2; q git stash list
  q git add -A; q git status; q git commit -m user --allow-empty; q git status; q git diff
  q git branch side-of-$$; q git branch -D side-of-$$; q git submodule update --init --recursive
  q git describe --always --dirty; q git grep -q x; q git ls-files --others --modified
  # With the editor and on a terminal, where git pages.
  q env -u GIT_EDITOR -u VISUAL TERM=dumb EDITOR=true git commit --allow-empty --amend
  TERM=dumb PAGER=cat q script -qec 'git diff HEAD~1' /dev/null
done
q git checkout -b user-$$; q git checkout -; q git fetch --all; q git worktree list; q git gc --auto
exit 0
