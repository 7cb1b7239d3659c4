# Replaces files that git reads in a work tree by links to the host and to endless files.
for name in .gitignore src/.gitignore docs/.gitignore; do rm -f $name; ln -s /dev/zero $name; done
for name in .mailmap .gitattributes src/.gitattributes .git-blame-ignore-revs; do
  rm -f $name; ln -s "$TRAP/secret" $name
done
commit
