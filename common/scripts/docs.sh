#!/bin/sh
# Builds the reference pages with Doxygen into FOLDER/html. Any warning, and any link that leads
# nowhere, is an error.
#   docs.sh FOLDER
# With the package doxygen-awesome-css the pages have its style: light and dark, and each text's
# table of contents beside it. Without it they have Doxygen's own. AWESOME says where it lies.
set -eu
folder=$1
awesome=${AWESOME:-/usr/share/doxygen-awesome-css}
rm -rf "$folder/html"  # what an older text left must not hide a broken link
mkdir -p "$folder"

# The options that the style needs, and Doxygen's page header with the style's scripts in it.
styled() {
  doxygen -w html "$folder/header.html" "$folder/footer.html" "$folder/style.css" >/dev/null
  sed '/<\/head>/e cat docs/site_scripts.html' "$folder/header.html" >"$folder/styled.html"
  echo "HTML_HEADER = $folder/styled.html"
  echo "HTML_EXTRA_STYLESHEET = $awesome/doxygen-awesome.css" \
    "$awesome/doxygen-awesome-sidebar-only.css" \
    "$awesome/doxygen-awesome-sidebar-only-darkmode-toggle.css docs/site.css"
  echo "HTML_EXTRA_FILES = $awesome/doxygen-awesome-darkmode-toggle.js" \
    "$awesome/doxygen-awesome-interactive-toc.js"
  # From 1.9.5 on Doxygen has a dark style of its own, which would mix with this one.
  doxygen -g - | sed -n 's/^HTML_COLORSTYLE  *=.*/HTML_COLORSTYLE = LIGHT/p'
}

{
  cat docs/Doxyfile
  echo "OUTPUT_DIRECTORY = $folder"
  [ ! -d solutions ] || echo 'INPUT += solutions'
  if [ -f "$awesome/doxygen-awesome.css" ]; then styled; fi
} | doxygen -
sh common/scripts/playground.sh "$folder/html/playground"
python3 docs/check_site.py "$folder/html"
echo "Open $folder/html/index.html"
