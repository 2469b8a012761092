#!/bin/sh
# Puts the libraries that a build for arm64 needs into a folder, from the system's packages:
#   arm64_libraries.sh FOLDER
# Nothing is installed, and neither root nor a change to the system's package lists is needed: apt
# keeps its lists in the folder, too. Says nothing when all is there.
set -eu
folder=$1
libraries='libfmt-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev zlib1g-dev libmd-dev'
libraries="$libraries catch2"
wanted="$(sed -n 's/^PRETTY_NAME=//p' /etc/os-release 2>/dev/null || true) $libraries"
[ "$(cat "$folder/complete" 2>/dev/null || true)" != "$wanted" ] || exit 0
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/packages"
folder=$(cd "$folder" && pwd)

log=$folder/apt/log
fail() {
  cat "$log" >&2
  echo "$1 (above). The servers that apt uses here must have packages for arm64: Debian's do." >&2
  exit 1
}
apt() {
  command=$1
  shift
  (cd "$folder/packages" && apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 \
    -o Dir::State="$folder/apt" -o Dir::State::status=/dev/null -o Dir::Cache="$folder/apt" \
    "$command" "$@") >"$log" 2>&1
}

echo "Fetching the libraries for arm64 into $folder"
apt update || fail 'The lists of packages for arm64 could not be fetched'
# shellcheck disable=SC2086  # lists of words are meant
apt install --simulate --no-install-recommends $libraries ||
  fail 'These packages do not fit together'
# These packages, and those that hold what they link with (libfmt9 …). The C++ library comes with
# the cross compiler.
packages=$(sed -n 's/^Inst \([^ ]*\) .*/\1/p' "$log" |
  grep -E '^(libfmt|libcli11|nlohmann-json3|libtomlplusplus|zlib1g|libmd|catch2)')
# shellcheck disable=SC2086
apt download $packages || fail 'The packages for arm64 could not be fetched'
for package in "$folder"/packages/*.deb; do dpkg-deb -x "$package" "$folder"; done
echo "$wanted" >"$folder/complete"
