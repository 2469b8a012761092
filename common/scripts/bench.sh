#!/bin/sh
# Runs every benchmark of a build, one after the other: they measure, so nothing else should run.
#   bench.sh BIN_FOLDER
set -eu
found=no
for program in "$1"/bench_*; do
  [ -x "$program" ] || continue
  found=yes
  echo "== $(basename "$program")"
  "$program"
done
[ $found = yes ] || { echo "bench.sh: there is no benchmark in $1" >&2; exit 1; }
