#!/bin/sh
# Checks the spelling of texts, comments and messages, American English included.
# What is spelled so on purpose is in spelling_ignored.txt, with the reason.
set -eu
git ls-files -z -- ':!*.svg' ':!*.safetensors' ':!tests/grader/hostile/*' |
  xargs -0 -r codespell --builtin clear,rare,en-GB_to_en-US \
    --ignore-words common/scripts/spelling_ignored.txt
