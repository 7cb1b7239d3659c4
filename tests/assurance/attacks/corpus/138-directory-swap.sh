# Changes files of a directory, then replaces the directory by a link to a directory of the host.
echo more >> src/app.py; commit
rm -rf src; ln -s "$TRAP" src; commit
git update-index --add --cacheinfo "100644,$(git hash-object -w a.txt),tools/more"
mkdir -p tools; ln -s "$TRAP" tools/link
