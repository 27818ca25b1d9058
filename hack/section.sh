#!/usr/bin/env bash
# section.sh FILE NAME: replaces the text in FILE between the lines "<!-- begin NAME ... -->" and "<!-- end NAME -->" with
# standard input. For pages with measured sections.
set -euo pipefail
file=${1:?section.sh FILE NAME}
name=${2:?section.sh FILE NAME}
new=$(mktemp)
trap 'rm -f "$new"' EXIT
cat >"$new"
grep -q "^<!-- begin $name " "$file" && grep -qx "<!-- end $name -->" "$file" || {
	echo "section.sh: $file has no lines <!-- begin $name ... --> and <!-- end $name -->: add them where the section belongs" >&2
	exit 1
}
awk -v begin="<!-- begin $name " -v end="<!-- end $name -->" -v new="$new" '
	index($0, begin) == 1 { print; print ""; while ((getline line <new) > 0) print line; print ""; skip = 1; next }
	$0 == end { skip = 0 }
	!skip { print }' "$file" >"$file.new"
cat "$file.new" >"$file"
rm "$file.new"
