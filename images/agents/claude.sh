# shellcheck shell=sh disable=SC2154  # read by install-agent.sh
npm_install "@anthropic-ai/claude-code-linux-$cpu@2.1.329"
provide claude "node_modules/@anthropic-ai/claude-code-linux-$cpu/claude"
