#!/bin/sh
# Runs clang-tidy over the sources of this project.
#   tidy.sh BUILD_FOLDER JOBS
set -eu
git ls-files -z -- 'common/*.cpp' 'tasks/*.cpp' 'solutions/*.cpp' 'apps/*.cpp' |
  xargs -0 -r -n 1 -P "$2" clang-tidy --quiet -p "$1"
