# Rewrites programs that are tracked files, where the user's filter and diff drivers name them.
#: repository rich
for name in tools/clean.sh tools/diff.sh; do program $name; done
echo '{"more": 1}' > x.nb
echo '* filter=nb diff=nb' >> .gitattributes
commit
