#!/bin/sh
# The examples do what their first lines say.
#   check.sh FIRST_TRAINING OWN_MODEL
set -eu
fail() { echo "$*"; exit 1; }

for ranks in 1 2 3 4; do
  losses=$("$1" $ranks | sed -n 's/.*loss \([0-9.]*\).*/\1/p')
  echo "first_training, $ranks ranks: $(echo "$losses" | tr '\n' ' ')"
  echo "$losses" | awk 'NR == 1 {first = $1} END {exit !(NR == 4 && $1 < 0.7 * first)}' ||
    fail "it does not learn"
done

weights=''
for ranks in 1 2 4; do
  said=$("$2" $ranks | sed -n 's/^weights //p')
  echo "own_model, $ranks ranks: weights $said"
  [ -n "$said" ] || fail "it prints no sum over its weights"
  [ -z "$weights" ] || [ "$said" = "$weights" ] || fail "the weights depend on the number of ranks"
  weights=$said
done
if said=$("$2" 3 2>&1); then fail "own_model takes 3 ranks"; fi
case $said in
*"3 ranks: use 1, 2 or 4"*) ;;
*) fail "own_model with 3 ranks says: $said" ;;
esac
