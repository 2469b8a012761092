#!/bin/sh
# Installs what a target of the Makefile needs and this machine lacks, after printing what and why.
#   install.sh GROUP…      groups: build bench docs format tidy clang course debug
# Says nothing and does nothing when all is there. INSTALL=no never calls the package manager.
set -eu

packages= # what is missing
report=   # … and why, a line each

# need PACKAGE REASON PROBE…: one of the probes must succeed, or PACKAGE is missing.
# A probe is a command's name, or a header relative to an include directory, or a library (*.so.N)
# relative to a library directory, or a library of clang's own (libclang_rt.*).
need() {
  package=$1 reason=$2
  shift 2
  for probe in "$@"; do
    case $probe in
      *.h | *.hpp) has_header "$probe" && return 0 ;;
      libclang_rt.*) has_clang_library "$probe" && return 0 ;;
      *.so.*) has_library "$probe" && return 0 ;;
      *) command -v "$probe" >/dev/null 2>&1 && return 0 ;;
    esac
  done
  packages="$packages $package"
  report="$report$(printf '\n  %-23s %s' "$package" "$reason")"
}

has_header() {
  for folder in /usr/include /usr/include/*-linux-gnu /usr/local/include /opt/homebrew/include; do
    [ ! -e "$folder/$1" ] || return 0
  done
  return 1
}

has_library() {
  for folder in /usr/lib /usr/lib/*-linux-gnu /usr/local/lib; do
    [ ! -e "$folder/$1" ] || return 0
  done
  return 1
}

has_clang_library() {
  [ -e "$(clang++ -print-file-name="$1" 2>/dev/null)" ]
}

for group in "$@"; do
  case $group in
    build)
      need g++ 'the compiler (C++20)' g++ clang++ c++
      need cmake 'describes the build' cmake
      need ninja-build 'runs the build on all processors' ninja
      need libfmt-dev 'formats messages' fmt/core.h
      need libcli11-dev 'reads the command line' CLI/CLI.hpp
      need nlohmann-json3-dev 'reads and writes JSON' nlohmann/json.hpp
      need libtomlplusplus-dev 'reads configuration files' toml++/toml.h
      need zlib1g-dev 'checks checkpoints (CRC-32)' zlib.h
      # Not the serial build: it is not safe to call from several threads (common/tensor/blas.cpp).
      need libopenblas-pthread-dev 'multiplies matrices (BLAS)' \
        openblas-pthread/cblas.h openblas-openmp/cblas.h openblas/cblas.h
      need catch2 'runs the tests' catch2/catch.hpp catch2/catch_all.hpp
      ;;
    bench)
      need libopenblas0-openmp 'the fastest build of the BLAS, to measure ours against' \
        openblas-openmp/libopenblas.so.0
      ;;
    docs)
      need doxygen 'makes the reference pages' doxygen
      need graphviz 'draws the diagrams in them' dot
      need python3 'writes the links between them, and checks each' python3
      ;;
    format) need clang-format 'formats the sources' clang-format ;;
    tidy) need clang-tidy 'checks the sources' clang-tidy ;;
    clang)
      need clang 'the second compiler' clang++
      need libclang-rt-dev 'its sanitizers' "libclang_rt.tsan-$(uname -m).a"
      ;;
    course)
      need python3 "runs the course's tools (3.11 or newer)" python3
      ;;
    debug) need gdb 'the debugger' gdb ;;
    *)
      echo "install.sh: unknown group '$group'" >&2
      exit 2
      ;;
  esac
done
[ -n "$packages" ] || exit 0

options='-y -q --no-install-recommends'
by_hand="apt-get update && apt-get install $options$packages"
echo "Missing on this machine:$report"

if [ "${INSTALL:-yes}" = no ]; then
  echo "Not installed (INSTALL=no). To install them, as root: $by_hand" >&2
  exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
  echo "This system has no apt-get. Install these (they are the names Debian gives them), then" \
    "run make again." >&2
  exit 1
fi
if [ "$(id -u)" = 0 ]; then
  as_root=
elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
  as_root=sudo
else
  echo "They can only be installed by root. Run this as root, then make again:" >&2
  echo "  $by_hand" >&2
  exit 1
fi

# $1…: an apt-get command. Its chatter goes to the log, which is shown if it fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  # shellcheck disable=SC2086  # as_root is a command or nothing
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o Dpkg::Use-Pty=0 "$@" </dev/null \
    >"$log" 2>&1
}

# shellcheck disable=SC2086  # a list of words is meant in all that follows
known() { apt-cache show --no-all-versions $packages >/dev/null 2>&1; }
install() { apt install $options $packages; }

echo "Installing them with: ${as_root:+$as_root }apt-get install $options$packages"
if ! known || ! install; then
  # The list of packages is missing or out of date.
  apt update || true
  install || {
    cat "$log" >&2
    echo "The installation failed (above). As root, this is what was tried:" >&2
    echo "  $by_hand" >&2
    exit 1
  }
fi
