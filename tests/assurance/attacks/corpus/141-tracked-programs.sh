# Rewrites tracked files that git's configuration may name as programs.
#: repository programs
for name in extdiff textconv editor pager sign hook askpass clean; do program tools/$name.sh; done
echo '{"more": 1}' > x.nb
echo '*.txt diff=top filter=top' >> .gitattributes
echo more >> a.txt
commit
echo later >> a.txt
