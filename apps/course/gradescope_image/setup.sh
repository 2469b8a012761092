#!/usr/bin/env bash
# Prepares Gradescope's image, once: packages, everything trusted compiled, the reference graded. The
# image fails unless the reference has all points, so a submission can never be the first to find out.
#
# Made for Ubuntu 24.04 (choose it as the base image); Debian 12 and 13 serve too.
set -euo pipefail
cd "$(dirname "$0")"

. /etc/os-release
echo "On $PRETTY_NAME; this autograder is made for Ubuntu 24.04."

cd unshard
if [ "${INSTALL:-yes}" != no ]; then
  apt-get update -q
  # git, curl and the like are not needed: nothing is downloaded but these packages.
  INSTALL=yes sh common/scripts/install.sh build course
fi
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { echo "Python 3.11 or newer is needed; choose the base image Ubuntu 24.04." >&2; exit 1; }

# Not for the processor at hand: the image may be made on another one than it runs on.
cmake --preset grade -DFSDP_NATIVE=OFF -DCMAKE_CXX_COMPILER_LAUNCHER= --log-level=NOTICE
exec python3 apps/course/gradescope.py setup --jobs "${JOBS:-$(nproc)}"
