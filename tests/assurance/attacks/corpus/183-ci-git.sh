# Makes git print CI commands: broken refs, an invalid HEAD, odd attributes, branches and tags.
#: ends success
git config alias.x '!echo ##vso[task.prependpath]PWNED'
printf '"##vso[a.b]::add-mask::PWNED\n::add-mask::PWNED [attr]##[add-mask]x\n' > .gitattributes
printf '##vso[task.prependpath]PWNED\n::add-mask::PWNED\n' > .gitignore
printf '[submodule "##vso[a.b]"]\n\tpath = ::add-mask::PWNED\n\turl = ##[add-mask]PWNED\n' > .gitmodules
git add -A; git commit -qm 'x'
for name in '##vso' '##add-mask' '::x' 'a##vso{b'; do git branch "$name" 2>&1; git tag "t$name" 2>&1; done
git notes add -m '##vso[task.prependpath]PWNED' 2>&1; git stash push -m '::add-mask::PWNED' 2>&1
echo
