#!/bin/sh
# Runs clang-tidy over the sources of this project. Every finding is an error.
#   tidy.sh BUILD_FOLDER JOBS [COMMIT]
# With COMMIT only over the sources that differ from it. A header is checked where it is included:
# by the .cpp of its name, and by one more. The other sources that include it are left to a run
# without COMMIT. After a clean one, its commit belongs into tidy_clean_at, where CI starts from.
# Not the skeletons, tasks/*/*.cpp: they are generated from solutions/, and what is not written yet
# could always be const or static.
set -eu
build=$1 jobs=$2 commit=${3:-}
decides=14 # versions differ in their checks; this one is Debian 12's
folders='common apps'
[ ! -d solutions ] || folders="$folders solutions"

version=$(clang-tidy --version | sed -n 's/.*version \([0-9]*\).*/\1/p')
[ "$version" = $decides ] ||
  echo "this is clang-tidy $version; its findings may differ from those of $decides, which decides"

changed() { # changed PATTERN…: the files that differ from the commit, and still exist
  git diff --name-only --diff-filter=d "$commit" -- "$@"
  git ls-files --others --exclude-standard -- "$@"
}

includers() { # includers HEADER KIND: the files of that kind that include it
  # shellcheck disable=SC2086  # folders are words
  grep -rlF --include="*.$2" "\"${1#*/}\"" tasks $folders | grep -v '^tasks/.*\.cpp$' | sort
}

sources_of() { # sources_of HEADER: where it is checked
  inside=${1#*/}
  for twin in "${1%.h}.cpp" "solutions/${inside%.h}.cpp"; do
    case $twin in tasks/*) continue ;; esac
    [ ! -f "$twin" ] || echo "$twin"
  done
  source=$(includers "$1" cpp | head -n 1)
  if [ -n "$source" ]; then
    echo "$source"
    return
  fi
  header=$(includers "$1" h | head -n 1) # only by another header: where that one is checked
  [ -z "$header" ] || sources_of "$header"
}

if [ -n "$commit" ] && ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
  echo "git knows no commit $commit here, so every source is checked"
  commit=
fi
if [ -n "$commit" ] && [ -n "$(changed .clang-tidy)" ]; then
  echo "the checks differ from those of $commit, so every source is checked"
  commit=
fi
if [ -z "$commit" ]; then
  # shellcheck disable=SC2086
  sources=$(find $folders -name '*.cpp' | sort)
else
  sources=$({
    changed 'common/*.cpp' 'apps/*.cpp' 'solutions/*.cpp'
    changed 'common/*.h' 'apps/*.h' 'tasks/*.h' | while read -r header; do sources_of "$header"; done
  } | sort -u)
fi

# A file that this build does not compile (for another processor, for MPI) is left to one that does.
sources=$(for source in $sources; do
  if grep -qF "/$source\"" "$build/compile_commands.json"; then echo "$source"; fi
done)

if [ -z "$sources" ]; then
  echo "no source that clang-tidy checks differs from $commit"
  exit
fi
# The counts that clang-tidy prints are those of system headers.
# shellcheck disable=SC2016  # for the inner shell
printf '%s\n' "$sources" | xargs -r -P "$jobs" -I{} sh -c '
  found=$(clang-tidy --quiet -p "$1" "$2" 2>&1) || { printf "%s\n" "$found"; exit 1; }' - "$build" {}
