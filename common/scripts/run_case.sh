#!/bin/sh
# Stands where a judge expects a runner, and starts its ranks as processes:
#   run_case.sh LAUNCHER RANKS RUNNER <case 3>observations
# The runner's process 0 reads the case from standard input, and writes to this shell's descriptor 3.
# If a signal ends a rank, whose process tells this shell, that signal ends this shell too, whatever
# the launcher makes of it.
set -u
launcher=$1 ranks=$2 runner=$3
export FSDP_CASE=$$
ended_by=
for signal in SEGV BUS FPE ILL ABRT XCPU; do
  # shellcheck disable=SC2064
  trap "ended_by=$signal" "$signal"
done
exec 4<&0  # a job in the background has no standard input, unless it is named
sh "$(dirname "$0")/mpirun.sh" "$launcher" "$ranks" "$runner" <&4 4<&- &
job=$!
wait "$job"
code=$?
if [ -n "$ended_by" ]; then
  kill "$job" 2>/dev/null
  wait "$job"
elif [ "$code" -eq 137 ] || [ "$code" -eq 9 ]; then
  # SIGKILL, which a process cannot tell of: 128 + 9 from Open MPI, 9 from MPICH.
  ended_by=KILL
fi
if [ -n "$ended_by" ]; then
  trap - "$ended_by" 2>/dev/null
  kill -"$ended_by" $$
fi
exit "$code"
