#!/bin/sh
# Installs what a target of the Makefile needs and this machine lacks, after printing what and why.
#   install.sh GROUP…   groups: compiler build cache bench docs format spelling tidy clang arm64
#                         course gdb lldb mpi playground
# Says nothing and does nothing when all is there. INSTALL=no never calls the package manager.
set -eu

packages= # what is missing
report=   # … and why, a line each
wishes=   # what is missing, and can be done without
python=   # whether the course's programs will run

# Every other system can use the container. Ubuntu 22.04, for one, has no toml++, and a Python that
# is too old.
system=$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release 2>/dev/null || true)
supported='Debian 12 and Debian 13 were tried; Ubuntu 24.04 has the packages too.'
# shellcheck disable=SC2016  # for the reader to expand
elsewhere='Elsewhere use its container: docker build -t unshard . &&
  docker run --rm -it -v "$PWD":/unshard unshard'

# need PACKAGE REASON PROBE…: one of the probes must succeed, or PACKAGE is missing.
need() {
  package=$1 reason=$2
  shift 2
  is_here "$@" && return 0
  case "$packages " in *" $package "*) return 0 ;; esac  # for another group
  packages="$packages $package"
  report="$report$(printf '\n  %-23s %s' "$package" "$reason")"
}

# want PACKAGE PROBE…: installed where the system has it; nothing fails without it.
want() {
  package=$1
  shift
  is_here "$@" || wishes="$wishes $package"
}

# Whether one of the probes succeeds. A probe is a file's path, a command's name, a header relative
# to an include directory, a library (*.so.N) relative to a library directory, or a library of
# clang's own (libclang_rt.*).
is_here() {
  for probe in "$@"; do
    case $probe in
      /*) [ -e "$probe" ] && return 0 ;;
      *.h | *.hpp) has_header "$probe" && return 0 ;;
      libclang_rt.*) has_clang_library "$probe" && return 0 ;;
      *.so.*) has_library "$probe" && return 0 ;;
      *) command -v "$probe" >/dev/null 2>&1 && return 0 ;;
    esac
  done
  return 1
}

compiler() { need g++ 'the compiler (C++20)' g++ clang++ c++; }

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
    compiler) compiler ;;
    build)
      compiler
      need cmake 'describes the build' cmake
      need ninja-build 'runs the build on all processors' ninja
      need libfmt-dev 'formats messages' fmt/core.h
      need libcli11-dev 'reads the command line' CLI/CLI.hpp
      need nlohmann-json3-dev 'reads and writes JSON' nlohmann/json.hpp
      need libtomlplusplus-dev 'reads configuration files' toml++/toml.h
      need zlib1g-dev 'checks checkpoints (CRC-32)' zlib.h
      need libmd-dev 'takes the fingerprint of a model (SHA-256)' sha2.h
      need catch2 'runs the tests' catch2/catch.hpp catch2/catch_all.hpp
      ;;
    cache) want ccache ccache ;; # what two builds compile alike is compiled once
    bench)
      # The fastest build of OpenBLAS, whose products ours are measured against.
      want libopenblas0-openmp openblas-openmp/libopenblas.so.0
      ;;
    docs)
      need doxygen 'makes the reference pages' doxygen
      need graphviz 'draws the diagrams in them' dot
      need python3 'writes the links between them, and checks each' python3
      want doxygen-awesome-css "${AWESOME:-/usr/share/doxygen-awesome-css}/doxygen-awesome.css"
      ;;
    playground)
      # One compiler of WebAssembly, its libraries, and a library of headers.
      want libfmt-dev fmt/core.h
      want clang-19 clang++-19
      want lld-19 wasm-ld-19
      want wasi-libc /usr/include/wasm32-wasi/stdio.h
      want libc++-19-dev-wasm32 /usr/include/wasm32-wasi/c++/v1/version
      want libc++abi-19-dev-wasm32 /usr/lib/wasm32-wasi/libc++abi.a
      want libclang-rt-19-dev-wasm32 /usr/lib/llvm-19/lib/clang/19/lib/wasi/libclang_rt.builtins-wasm32.a
      ;;
    format) need clang-format 'formats the sources' clang-format ;;
    spelling) need codespell 'checks the spelling' codespell ;;
    tidy) need clang-tidy 'checks the sources' clang-tidy ;;
    clang)
      need clang 'the second compiler' clang++
      need libclang-rt-dev 'its sanitizers' "libclang_rt.tsan-$(uname -m).a"
      ;;
    arm64)
      need g++-aarch64-linux-gnu 'compiles for arm64' aarch64-linux-gnu-g++
      need qemu-user 'runs what it compiled' qemu-aarch64
      ;;
    course)
      need python3 "runs the course's tools (3.11 or newer)" python3
      python=needed
      ;;
    gdb) need gdb 'the debugger' gdb ;;
    lldb) need lldb 'another debugger' lldb ;;
    mpi)
      need libopenmpi-dev 'ranks as processes (MPI)' mpicxx
      need openmpi-bin 'starts them' mpirun
      ;;
    *)
      echo "install.sh: unknown group '$group'" >&2
      exit 2
      ;;
  esac
done

# The last word of every run that found or made all that is needed.
done_here() {
  [ -n "$python" ] || exit 0
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' && exit 0
  echo "$(python3 --version) is too old: the course's programs need Python 3.11 or newer, as" \
    "python3. $supported" >&2
  echo "$elsewhere" >&2
  exit 1
}
# An end without what is needed; but nobody is stopped for want of a wish.
stop() {
  [ -n "$packages" ] || done_here
  echo "$1" >&2
  exit 1
}

[ -n "$packages$wishes" ] || done_here
options='-y -q --no-install-recommends'
by_hand="apt-get update && apt-get install $options$packages"
[ -z "$packages" ] || echo "Missing on this machine:$report"

[ "${INSTALL:-yes}" != no ] ||
  stop "Not installed (INSTALL=no). To install them, as root: $by_hand"
command -v apt-get >/dev/null 2>&1 ||
  stop "This system has no apt-get. Install these (they are the names Debian gives them), then run
make again. $elsewhere"
if [ "$(id -u)" = 0 ]; then
  as_root=
elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
  as_root=sudo
else
  stop "They can only be installed by root. Run this as root, then make again:
  $by_hand"
fi

# $1…: an apt-get command. Its chatter goes to the log, which is shown if it fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  # shellcheck disable=SC2086  # as_root is a command or nothing
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o Dpkg::Use-Pty=0 "$@" </dev/null \
    >"$log" 2>&1
}

# The packages among $1… that the system's list does not know.
unknown() {
  for package in "$@"; do
    [ -n "$(apt-cache show --no-all-versions "$package" 2>/dev/null)" ] || echo "$package"
  done
}
# shellcheck disable=SC2086  # a list of words is meant in all that follows
install() {
  chosen=$packages
  for wish in $wishes; do
    [ -n "$(unknown "$wish")" ] || chosen="$chosen $wish"
  done
  [ -n "$chosen" ] || done_here
  echo "Installing with: ${as_root:+$as_root }apt-get install $options$chosen"
  apt install $options $chosen
}

# shellcheck disable=SC2086
if [ -n "$(unknown $packages)" ] || ! install; then
  # The list of packages is missing or out of date.
  apt update || true
  # shellcheck disable=SC2046
  set -- $(unknown $packages)
  [ $# = 0 ] || stop "The packages of ${system:-this system} do not include: $*
$supported (If it is one of these, its list of sources lacks a part.)
$elsewhere"
  install || {
    [ -z "$packages" ] || cat "$log" >&2
    stop "The installation failed (above). As root, this is what was tried:
  $by_hand"
  }
fi
done_here
