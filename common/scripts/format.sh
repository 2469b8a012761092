#!/bin/sh
# Formats every C++ source that git tracks; with --check, only lists what is not formatted.
# Not the students' files, tasks/*/*.cpp: generated at first, and theirs from then on. Not a kit's
# copies of them, by which the grader tells what a student changed.
set -eu
decides=14 # versions differ in small things; this one is Debian 12's

version=$(clang-format --version | sed -n 's/.*version \([0-9]*\).*/\1/p')
options=-i
if [ "${1:-}" = --check ]; then
  if [ "$version" != $decides ]; then
    echo "formatting was not checked: it needs clang-format $decides, but this is $version"
    exit 0
  fi
  options='--dry-run --Werror'
fi
# shellcheck disable=SC2086  # options are words
git ls-files -z -- '*.h' '*.cpp' '*.cu' ':!tasks/*/*.cpp' \
  ':!apps/course/skeletons/*' | xargs -0 -r clang-format $options
