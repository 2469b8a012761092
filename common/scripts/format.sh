#!/bin/sh
# Formats every C++ source that git tracks; with --check, only lists what is not formatted.
set -eu
if [ "${1:-}" = --check ]; then
  options='--dry-run --Werror'
else
  options=-i
fi
git ls-files -z -- '*.h' '*.cpp' '*.cu' | xargs -0 -r clang-format $options
