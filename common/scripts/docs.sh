#!/bin/sh
# Builds the reference pages with Doxygen into FOLDER/html. Any warning, and any link that leads
# nowhere, is an error.
#   docs.sh FOLDER
set -eu
folder=$1
rm -rf "$folder/html"  # what an older text left must not hide a broken link
mkdir -p "$folder"
{
  cat docs/Doxyfile
  echo "OUTPUT_DIRECTORY = $folder"
  [ ! -d solutions ] || echo 'INPUT += solutions'
} | doxygen -
python3 docs/check_site.py "$folder/html"
echo "Open $folder/html/index.html"
