#!/bin/bash
# Unpack Debian's registry of images, and print the path of its program. It is kept, as what build.sh builds.
set -euo pipefail
export LC_ALL=C
cache=${ORCHESTRATOR_CLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/orchestrator/cluster}
result=$cache/registry-$(sha256sum "${BASH_SOURCE[0]}" | cut -c1-16)
program=$result/usr/bin/docker-registry
[ -x "$program" ] && { echo "$program"; exit; }
mkdir -p "$cache"
exec 8> "$cache/lock"
flock 8
[ -x "$program" ] && { echo "$program"; exit; }

work=$result.incomplete
rm -rf "$work"
mkdir -p "$work"/{lists/partial,archives/partial}
cd "$work"
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | head -n 1)
[ -n "$mirror" ] || { echo "registry.sh: apt has no mirror" >&2; exit 1; }
echo "deb $mirror bookworm main" > sources.list
for command in update "download docker-registry"; do
    apt-get -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/lists" \
        -o Dir::Cache::archives="$work/archives" -o APT::Sandbox::User=root $command >&2
done
dpkg-deb -x docker-registry_*.deb .
rm -rf lists archives sources.list ./*.deb
cd "$cache"
mv "$work" "$result"
echo "$program"
