# The files that git itself reads in a work tree, as links to the host's and to what never ends.
for name in .gitignore src/.gitignore docs/.gitignore; do rm -f $name; ln -s /dev/zero $name; done
for name in .mailmap .gitattributes src/.gitattributes .git-blame-ignore-revs; do
  rm -f $name; ln -s "$TRAP/secret" $name
done
commit
