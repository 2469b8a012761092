#!/bin/sh
# Makes the page to play with, docs/playground, in FOLDER, and the module of WebAssembly that it asks.
# The page needs no server: the module is a text in one of its scripts, engine.js. Run it in the
# repository's root.
#   playground.sh FOLDER
# Where clang 19 (version 14's library is too old), its libraries for WebAssembly or fmt is missing,
# the page has no module, and says so; and so does this.
set -eu
folder=$1
rm -rf "$folder"
mkdir -p "$folder"
cp docs/playground/* "$folder"

clang=clang++-19
target='--target=wasm32-wasi -std=c++20 -O2 -fexceptions -DFMT_HEADER_ONLY'
# What overflows the stack meets the end of memory, and no data.
link='-mexec-model=reactor -Wl,--strip-all -Wl,--gc-sections -Wl,--stack-first -Wl,-z,stack-size=1048576'
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
for include in /usr/include /usr/local/include; do
  [ ! -e "$include/fmt/format.h" ] || ln -sfn "$include/fmt" "$objects/fmt"  # headers for any machine
done
echo '#include <fmt/format.h>' >"$objects/trial.cpp"
# shellcheck disable=SC2086  # words
if ! $clang $target -isystem "$objects" $link "$objects/trial.cpp" -o "$objects/trial.wasm" \
  2>"$objects/why"; then
  sed -i '/engine\.js/d' "$folder/index.html"
  echo "The page to play with has no module. That needs clang 19, its libraries for WebAssembly" \
    "(Debian has both) and fmt: $(head -n 1 "$objects/why")"
  exit 0
fi
rm "$objects"/trial.*

# What a step on paper is computed from: data, and no memory, thread, tape or file.
sources="apps/playground/page.cpp apps/playground/wasm.cpp apps/plan/evaluator.cpp
  apps/plan/magnitude.cpp $(ls apps/paper/*.cpp)
  common/base/breakdown.cpp common/base/clock.cpp common/base/printable.cpp common/base/types.cpp
  common/base/utf8.cpp common/comm/collective_op.cpp common/nn/transformer_config.cpp
  common/optim/recipe.cpp common/optim/reshard.cpp common/optim/step_plan.cpp
  common/parallel/partition.cpp common/tensor/optimizers.cpp"
warnings='-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror'
# shellcheck disable=SC2086
printf '%s\n' $sources | xargs -P "$(nproc)" -I{} sh -c \
  '"$0" $2 -ffp-contract=off -Icommon -Iapps -isystem "$1" -c {} -o "$1/$(basename {} .cpp).o"' \
  $clang "$objects" "$target $warnings"
# shellcheck disable=SC2086
$clang $target $link "$objects"/*.o -o "$objects/engine.wasm"
text=$(base64 -w 0 "$objects/engine.wasm")
cat >"$folder/engine.js" <<END
'use strict';
const COMMIT = '$(git describe --always --dirty 2>/dev/null || true)';
const MODULE = '$text';
END
echo "Open $folder/index.html"
