#!/bin/bash
# Build the programs of a Kubernetes cluster from Debian's packages, and print the directory that holds them.
# The only server in Debian is the source package of 1.20. Go, etcd and the network plugins are unpacked, not
# installed: nothing on this machine changes. The result is kept, named by the hash of this script.
set -euo pipefail
export LC_ALL=C
release=bookworm
cache=${ORCHESTRATOR_CLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/orchestrator/cluster}
result=$cache/$(sha256sum "${BASH_SOURCE[0]}" | cut -c1-16)
[ -d "$result" ] && { echo "$result"; exit; }
mkdir -p "$cache"
exec 8> "$cache/lock"
flock 8
[ -d "$result" ] && { echo "$result"; exit; }

work=$result.incomplete
rm -rf "$work"
mkdir -p "$work"/{lists/partial,archives/partial,unpacked,bin}
cd "$work"
exec 9>&1 1>&2

# The mirror is the one that this machine uses.
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | head -n 1)
[ -n "$mirror" ] || { echo "build.sh: apt has no mirror" >&2; exit 1; }
printf 'deb %s %s main\ndeb-src %s %s main\n' "$mirror" $release "$mirror" $release > sources.list
apt() {
    apt-get -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/lists" \
        -o Dir::Cache::archives="$work/archives" -o APT::Sandbox::User=root "$@"
}
apt update
apt download golang-1.19-go golang-1.19-src etcd-server containernetworking-plugins
apt --only-source --download-only source kubernetes
for package in *.deb; do dpkg-deb -x "$package" unpacked; done
dpkg-source --no-check -x kubernetes_*.dsc source > /dev/null

export GOROOT=$work/unpacked/usr/lib/go-1.19 PATH=$work/unpacked/usr/lib/go-1.19/bin:$PATH
rm -f "$GOROOT/src" && ln -s "$work/unpacked/usr/share/go-1.19/src" "$GOROOT/src"
for directory in api misc test pkg/include; do
    [ -e "$work/unpacked/usr/share/go-1.19/$directory" ] || continue
    rm -rf "${GOROOT:?}/$directory" && ln -s "$work/unpacked/usr/share/go-1.19/$directory" "$GOROOT/$directory"
done
export CGO_ENABLED=0 GOPROXY=off GO111MODULE=off GOPATH=$work/source/.go GOCACHE=$work/go-cache GOFLAGS=-p=2 GOTOOLCHAIN=local
mkdir -p source/.go/src/k8s.io
ln -sfn ../../.. source/.go/src/k8s.io/kubernetes
cd source/.go/src/k8s.io/kubernetes

# The one generated file that the source package lacks.
go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
packages=$(grep -rl --include='*.go' '+k8s:openapi-gen=' pkg plugin cmd vendor/k8s.io/ staging/src/k8s.io/ | sed 's#^staging/src/#vendor/#' \
    | grep -vE 'vendor/k8s.io/(code-generator|sample-apiserver|gengo|kube-openapi/(cmd|test|pkg/generators))|/testdata/|_test.go' \
    | xargs -n1 dirname | sort -u | sed 's#^#k8s.io/kubernetes/#' | paste -sd,)
"$work/openapi-gen" --logtostderr -i "$packages" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
    -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$work/violations"

version=
for package in component-base/version client-go/pkg/version; do
    for value in gitVersion=v1.20.2 gitMajor=1 gitMinor=20; do
        version="$version -X k8s.io/kubernetes/vendor/k8s.io/$package.$value"
    done
done
go build -trimpath -tags providerless -ldflags "-s -w $version" -o "$work/bin/" \
    ./cmd/kube-apiserver ./cmd/kube-controller-manager ./cmd/kube-scheduler ./cmd/kubelet ./cmd/kubectl

cd "$work"
mv unpacked/usr/bin/etcd bin/
mv unpacked/usr/lib/cni cni
chmod -R u+w go-cache source
rm -rf unpacked source go-cache lists archives openapi-gen violations sources.list ./*.deb ./*.dsc ./*.tar.* ./*.debian.*
cd "$cache"
mv "$work" "$result"
echo "$result" >&9
