#!/usr/bin/env bash
# Checks the types of the scripts with @types/k6, and lists the files that were looked at. Takes npm, and installs Debian's
# when there is none and it runs as root.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v npm >/dev/null; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "the types of scripts/k6 need npm: install Node.js 18 or newer with npm" >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >&2 || true
  apt-get install -y -qq --no-install-recommends nodejs npm >&2
fi
# npm writes the second file last.
[ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2
exec node_modules/.bin/tsc --noEmit --listFiles
