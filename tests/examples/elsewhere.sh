#!/bin/sh
# A program in a project of its own is built over the library, and gets the bits that it gets here.
#   elsewhere.sh find_package BUILD OWN_MODEL CXX       over what BUILD installs
#   elsewhere.sh add_subdirectory BUILD OWN_MODEL CXX   over the sources: what it compiles with, …
#   … --build                                           and what it then computes, which takes minutes
set -eu
fail() { echo "$*"; exit 1; }
how=$1 build=$2 own_model=$3 compiler=$4 whole=${5:-}
folder=$(cd "$(dirname "$0")" && pwd)/$how
there=$(mktemp -d)
trap 'rm -rf "$there"' EXIT

if [ "$how" = find_package ]; then
  cmake --install "$build" --prefix "$there/installed" >"$there/log" || fail "$(cat "$there/log")"
  include=$there/installed/include/unshard
  [ -f "$include/task7_integration/integration.h" ] || fail "there is no integration.h"
  # What a header includes is there, too.
  for header in $(grep -rhoE '^#include "[^"]+' "$include" | sed 's/.*"//' | sort -u); do
    [ -f "$include/$header" ] || fail "a header that is installed includes $header, which is not"
  done
  whole=--build
fi

cmake -S "$folder" -B "$there/build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_PREFIX_PATH="$there/installed" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >"$there/log" 2>&1 ||
  fail "$(cat "$there/log")"
options=$(sed -n 's/.*"command": *"\(.*own_model\.cpp\.o\) .*/\1/p' "$there/build/compile_commands.json" |
  tr ' ' '\n' | grep -E '^-[Wfm]' | tr '\n' ' ')
echo "$how: compiled with $options"
[ "$options" = "-ffp-contract=off " ] || fail "of our options, -ffp-contract=off alone is for others"
[ "$whole" = --build ] || exit 0

cmake --build "$there/build" --target mine >"$there/log" 2>&1 || fail "$(cat "$there/log")"
for ranks in 1 2; do
  "$own_model" $ranks >"$there/here"
  "$there/build/mine" $ranks >"$there/elsewhere"
  grep '^weights ' "$there/elsewhere" || fail "it prints no sum over its weights"
  cmp "$there/here" "$there/elsewhere" || fail "it does not print what the same program prints here"
done
