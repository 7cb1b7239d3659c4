# shellcheck shell=sh disable=SC2154  # read by install-agent.sh
npm_install "@openai/codex@0.169.0-linux-$cpu"
vendor="node_modules/@openai/codex/vendor/$(uname -m)-unknown-linux-musl"
rm -rf "$top/$vendor/codex-resources/voice"
provide codex "$vendor/bin/codex"
