#!/usr/bin/env bash
# Package: openssh-client 1:9.2p1-2+deb12u10 (Debian 12, amd64), ssh -G prints the settings in force.
# Guess:   for each parameter the first value obtained is used, the command line before the file, and
#          a specific Host section before a general one below it: so says ssh_config(5), and it notes
#          no exception at StreamLocalBindMask.
# Instead: StreamLocalBindMask takes the last value: the file overrides -o, and "Host *" at the end of
#          the file overrides the host's own section. User, in the same places, keeps the first.
# Seen on 2026-11-29:
#   -o on the command line: user command-line, streamlocalbindmask 0177
#   section of the host: user section, streamlocalbindmask 0177
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get -qq -o APT::Sandbox::User=root download openssh-client=1:9.2p1-2+deb12u10
dpkg -x openssh-client_*.deb package

cat >config <<'EOF'
Host own
    User section
    StreamLocalBindMask 0117
Host *
    User general
    StreamLocalBindMask 0177
EOF

settings() { # SSH-ARGUMENTS...
    package/usr/bin/ssh -G -F config "$@" 2>/dev/null </dev/null |
        grep -E '^(user|streamlocalbindmask) ' | paste -sd, | sed 's/,/, /'
}
line=$(settings -o User=command-line -o StreamLocalBindMask=0117 other)
section=$(settings own)
echo "-o on the command line: $line"
echo "section of the host: $section"

if [[ $line != "user command-line, streamlocalbindmask 0177" ||
    $section != "user section, streamlocalbindmask 0177" ]]; then
    echo "changed: the first StreamLocalBindMask is used now, as documented" >&2
    exit 1
fi
