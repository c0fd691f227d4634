#!/usr/bin/env bash
# lost_rank.sh PROGRAM HOW SENTENCE: runs PROGRAM on three ranks, of which rank 1 is lost in the way
# that HOW names. Within 25 s every rank must have ended without being killed by this script, the
# status must not be 0, and somebody must print SENTENCE.
#
# When a job is aborted while one of its ranks is in MPI_Finalize, Open MPI's mpirun often waits for
# ever for a mutex in PMIx_server_finalize, although every rank has ended. It is then killed, and its
# status tells nothing.
set -uo pipefail
output=$(mktemp)
trap 'rm -f "$output"' EXIT
mpirun --allow-run-as-root --oversubscribe -np 3 "$1" "$2" >"$output" 2>&1 &
job=$!
ranks=() begun=no
# Prints the processes that run PROGRAM in this job. A process that has ended runs nothing.
running() {
  local each
  for each in "${ranks[@]}"; do
    [ "/proc/$each/exe" -ef "$1" ] && echo "$each"
  done
}

for ((tenths = 0; tenths < 250; ++tenths)); do
  sleep 0.1
  mapfile -t children < <(pgrep -P "$job")
  [ "${#children[@]}" -eq 0 ] || ranks=("${children[@]}")
  if [ -n "$(running "$1")" ]; then
    begun=yes
  elif [ $begun = yes ]; then
    break
  fi
  kill -0 "$job" 2>/dev/null || break
done
for ((tenths = 0; tenths < 30; ++tenths)); do
  kill -0 "$job" 2>/dev/null || [ -n "$(running "$1")" ] || break
  sleep 0.1
done
left=$(running "$1")
[ -z "$left" ] || kill -KILL $left
kill -KILL "$job" 2>/dev/null && echo "mpirun hangs, and is killed"
wait "$job" 2>/dev/null
status=$?
cat "$output"

[ -z "$left" ] || { echo "processes $left still ran after the job had ended or 25 s"; exit 1; }
grep -q "$3" "$output" || { echo "nobody said: $3"; exit 1; }
[ "$status" -ne 0 ] || { echo "the job ended as if nothing had happened"; exit 1; }
