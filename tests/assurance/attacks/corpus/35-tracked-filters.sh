# Rewrites tracked programs that the user's filter and diff drivers name.
#: repository rich
for name in tools/clean.sh tools/diff.sh; do program $name; done
echo '{"more": 1}' > x.nb
echo '* filter=nb diff=nb' >> .gitattributes
commit
