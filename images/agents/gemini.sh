# shellcheck shell=sh disable=SC2154  # read by install-agent.sh
# With a Node of its own: it runs in a project's image whatever Node that has, and if it has none.
npm_install @google/gemini-cli@0.61.0 "node-linux-$cpu@22.23.3"
cat >"$top/gemini" <<EOF
#!/bin/sh
exec $top/node_modules/node-linux-$cpu/bin/node \
$top/node_modules/@google/gemini-cli/bundle/gemini.js "\$@"
EOF
chmod 755 "$top/gemini"
provide gemini gemini
