# A directory of the base becomes a link to one of the host, files of it being changed before.
echo more >> src/app.py; commit
rm -rf src; ln -s "$TRAP" src; commit
git update-index --add --cacheinfo "100644,$(git hash-object -w a.txt),tools/more"
mkdir -p tools; ln -s "$TRAP" tools/link
