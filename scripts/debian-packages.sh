#!/usr/bin/env bash
# The machine's own Debian package index as NDJSON on stdout: real input with random, unordered keys.
#
#   scripts/debian-packages.sh          every package file (about 60,000 records on Debian 12)
#   scripts/debian-packages.sh COUNT    the first COUNT of them
#
# One record per package file, in the order of the index; the key is the SHA256 of the file:
#
#   {"key", "package", "version", "architecture", "section", "priority", "size", "installed_size",
#    "maintainer", "homepage", "depends", "filename", "description"}
#
# size is in bytes, installed_size in KiB, both numbers; everything else is a string; what a package does not say is
# left out. A package without a SHA256 is skipped, a second one with the same SHA256 too. The same index gives the same
# bytes. Needs apt, awk and bash; fetches the index (as root) only when the machine has none.
set -euo pipefail
export LC_ALL=C # awk sees bytes; UTF-8 passes through untouched

die() { printf 'debian-packages: %s\n' "$*" >&2; exit 1; }

count=0 # no limit
if [ $# -gt 0 ]; then
  [[ $# -eq 1 && $1 =~ ^[1-9][0-9]{0,8}$ ]] || die "usage: scripts/debian-packages.sh [COUNT], COUNT from 1"
  count=$1
fi

helper=/usr/lib/apt/apt-helper # part of apt, not in PATH
for tool in apt-get awk "$helper"; do
  command -v "$tool" >/dev/null || die "$tool is missing: this needs Debian or one of its children"
done

# index_files prints the files apt keeps the index in, in the order of its sources; any of apt's compressions.
index_files() {
  local list=()
  mapfile -t list < <(apt-get indextargets --format '$(FILENAME)' 'Created-By: Packages')
  local file
  for file in "${list[@]}"; do
    if [ -s "$file" ]; then printf '%s\n' "$file"; fi
  done
}

mapfile -t files < <(index_files)
if [ ${#files[@]} -eq 0 ]; then
  apt-get update -qq >&2 || die "no package index here, and apt-get update failed (it needs root and a network)"
  mapfile -t files < <(index_files)
  [ ${#files[@]} -gt 0 ] || die "no package index here, even after apt-get update"
fi

"$helper" cat-file "${files[@]}" | awk -v count="$count" '
  BEGIN {
    fields = split("package version architecture section priority size installed-size" \
      " maintainer homepage depends filename description", order, " ")
    number["size"] = number["installed-size"] = 1
    for (i = 1; i <= fields; i++) { wanted[order[i]] = 1; label[order[i]] = order[i] }
    wanted["sha256"] = 1
    label["installed-size"] = "installed_size"
    for (i = 1; i < 32; i++) escape[sprintf("%c", i)] = sprintf("\\u%04x", i)
    escape["\n"] = "\\n"; escape["\t"] = "\\t"
  }

  # Past the limit the rest is read and dropped: leaving early would break the pipe.
  count && printed >= count { next }

  /^[ \t]*$/ { stanza(); next }

  # A continuation line; a lone dot stands for an empty one.
  /^[ \t]/ {
    if (field in wanted) { line = substr($0, 2); value[field] = value[field] "\n" (line == "." ? "" : line) }
    next
  }

  (colon = index($0, ":")) {
    field = tolower(substr($0, 1, colon - 1))
    if (field in wanted) { line = substr($0, colon + 1); sub(/^[ \t]+/, "", line); sub(/[ \t\r]+$/, "", line); value[field] = line }
  }

  END { if (!(count && printed >= count)) stanza() }

  function stanza(    key, i, name, text) {
    key = value["sha256"]
    if (key ~ /^[0-9a-f]+$/ && length(key) == 64 && !(key in seen)) {
      seen[key] = 1
      text = "{\"key\":\"" key "\""
      for (i = 1; i <= fields; i++) {
        name = order[i]
        if (value[name] == "" || (name in number && value[name] !~ /^(0|[1-9][0-9]*)$/)) continue
        text = text ",\"" label[name] "\":" (name in number ? value[name] : quoted(value[name]))
      }
      print text "}"
      printed++
    }
    for (name in value) delete value[name]
    field = ""
  }

  function quoted(s,    out, i, c) {
    if (s !~ /[\001-\037"\\]/) return "\"" s "\""
    for (i = 1; i <= length(s); i++) {
      c = substr(s, i, 1)
      if (c == "\"" || c == "\\") c = "\\" c
      else if (c in escape) c = escape[c]
      out = out c
    }
    return "\"" out "\""
  }
'
