# shellcheck shell=sh disable=SC2154  # read by install-agent.sh
npm_install "opencode-linux-$cpu@1.18.33"
provide opencode "node_modules/opencode-linux-$cpu/bin/opencode"
