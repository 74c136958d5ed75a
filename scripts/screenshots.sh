#!/usr/bin/env bash
# Looks at the operators' page in a headless Chromium, on real servers, and keeps the pictures in docs/ui.
#
#   scripts/screenshots.sh          the tests of the page with 9 minutes of traffic, and the pictures of the docs
#   scripts/screenshots.sh check    the tests alone, with 15 seconds of traffic; the pictures go to a temporary folder
#
# Needs a machine as scripts/stack.sh does, or GATEWAY_TEST_MYSQL and GATEWAY_TEST_MONGO. Installs chromium and pngquant, as
# root, when they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { printf 'screenshots: %s\n' "$*" >&2; exit 1; }

tools=(chromium pngquant)
keep=docs/ui
case ${1-} in
  '') export SCENE=${SCENE:-9m} ;;
  check) keep='' tools=(chromium) ;;
  *) die "usage: scripts/screenshots.sh [check]" ;;
esac
for tool in "${tools[@]}"; do
  command -v "$tool" >/dev/null && continue
  (export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && apt-get install -y -qq --no-install-recommends "$tool") >/dev/null || die "$tool is missing and cannot be installed"
done
PICTURES=$(mktemp -d)
export PICTURES
scripts/stack.sh run go test -count=1 -v -timeout 30m -tags browser ./test/browser
if [ -z "$keep" ]; then
  printf 'screenshots: the pictures are in %s\n' "$PICTURES"
  exit
fi
mkdir -p "$keep"
for name in light-1280 dark-1280 light-390; do
  pngquant --force --speed 1 --strip --output "$keep/$name.png" 64 "$PICTURES/$name.png"
done
rm -r "$PICTURES"
