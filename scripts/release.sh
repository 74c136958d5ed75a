#!/usr/bin/env bash
# Builds what a release consists of, into dist/: for each platform a static binary in an archive with the README, the licence
# and the examples, a list of all modules in it (SBOM, CycloneDX), and SHA256SUMS over everything.
#
#     scripts/release.sh v1.2.3
#
# The same commit gives the same files: paths are trimmed, and all of them carry the time of the commit.
set -euo pipefail
cd "$(dirname "$0")/.."

# Pinned here and kept out of go.mod, as the tools of the Makefile are.
readonly SBOM_TOOL=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0
readonly PLATFORMS=${PLATFORMS:-linux/amd64 linux/arm64 darwin/arm64}
readonly PACKED=(README.md LICENSE CHANGELOG.md config.yaml deploy docs)

version=${1:?usage: scripts/release.sh VERSION, like v1.2.3}
if [[ ! $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]]; then
  echo "release: $version is no version: want v1.2.3 or v1.2.3-rc.1" >&2
  exit 1
fi
if [[ -n $(git status --porcelain) ]]; then
  echo "release: there are changes that are not committed; a release is made of a commit" >&2
  exit 1
fi

commit_time=$(git log -1 --format=%ct)
commit_date=$(date --utc --date="@$commit_time" +%Y-%m-%dT%H:%M:%SZ)
rm -rf dist
mkdir -p dist
for platform in $PLATFORMS; do
  os=${platform%/*} arch=${platform#*/}
  name=keyrange_${version}_${os}_${arch}
  echo "release: $name"
  mkdir "dist/$name"
  CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -buildvcs=true -trimpath -ldflags "-s -w -X main.version=$version" -o "dist/$name/gateway" ./cmd/gateway
  cp -r "${PACKED[@]}" "dist/$name/"
  tar --create --file - --directory dist --sort=name --mtime="@$commit_time" --owner=0 --group=0 --numeric-owner \
    --mode=u=rwX,go=rX "$name" |
    gzip --no-name >"dist/$name.tar.gz"
  go run "$SBOM_TOOL" bin -json -noserial -version "$version" -output "dist/$name.sbom.json" "dist/$name/gateway"
  sed -i -E "s/(\"timestamp\": )\"[^\"]*\"/\1\"$commit_date\"/" "dist/$name.sbom.json"
  rm -r "dist/${name:?}"
done
(cd dist && sha256sum -- * >SHA256SUMS)
echo "release: dist/ has $(wc -l <dist/SHA256SUMS) files, see dist/SHA256SUMS"
