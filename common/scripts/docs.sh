#!/bin/sh
# Builds the reference pages with Doxygen into FOLDER/html. Any warning is an error.
#   docs.sh FOLDER
set -eu
folder=$1
mkdir -p "$folder"
{ cat docs/Doxyfile && echo "OUTPUT_DIRECTORY = $folder"; } | doxygen -
echo "Open $folder/html/index.html"
