#!/bin/sh
# Makes the page to play with, docs/playground, in FOLDER, and the module of WebAssembly that it asks.
# The page needs no server: the module is a text in one of its scripts, engine.js.
#   playground.sh FOLDER
# Without clang 19 and its libraries for WebAssembly (version 14's is too old) the page has no module,
# and says so; and so does this.
set -eu
folder=$1
rm -rf "$folder"
mkdir -p "$folder"
cp docs/playground/* "$folder"
clang=clang++-19
if ! command -v $clang >/dev/null || ! command -v wasm-ld-19 >/dev/null ||
  [ ! -e /usr/include/wasm32-wasi/c++/v1/version ]; then
  echo "The page to play with has no module: that needs clang 19 and its libraries for WebAssembly" \
    "(Debian has both)."
  exit 0
fi

# What a step on paper is computed from: data, and no memory, thread, tape or file.
sources="apps/playground/page.cpp apps/playground/wasm.cpp apps/plan/evaluator.cpp
  apps/plan/magnitude.cpp $(ls apps/paper/*.cpp)
  common/base/breakdown.cpp common/base/clock.cpp common/base/printable.cpp common/base/types.cpp
  common/base/utf8.cpp common/comm/collective_op.cpp common/nn/transformer_config.cpp
  common/optim/recipe.cpp common/optim/reshard.cpp common/optim/step_plan.cpp
  common/parallel/partition.cpp common/tensor/optimizers.cpp"

objects=$folder/objects
mkdir -p "$objects/include"
ln -s /usr/include/fmt "$objects/include/fmt"  # headers for any machine
flags="--target=wasm32-wasi -std=c++20 -O2 -fexceptions -DFMT_HEADER_ONLY -Wall -Wextra -Wpedantic
  -Wshadow -Wconversion -Werror -ffp-contract=off -Icommon -Iapps -isystem $objects/include"
# shellcheck disable=SC2086  # words
printf '%s\n' $sources | xargs -P "$(nproc)" -I{} sh -c \
  '"$0" $2 -c {} -o "$1/$(basename {} .cpp).o"' $clang "$objects" "$flags"
$clang --target=wasm32-wasi -mexec-model=reactor -Wl,--strip-all -Wl,--gc-sections \
  "$objects"/*.o -o "$objects/engine.wasm"
commit=$(git rev-parse --short HEAD 2>/dev/null || echo 'an unknown commit')
{
  echo "'use strict';"
  echo "const COMMIT = '$commit';"
  echo "const MODULE = '$(base64 -w 0 "$objects/engine.wasm")';"
} >"$folder/engine.js"
rm -r "$objects"
echo "Open $folder/index.html"
