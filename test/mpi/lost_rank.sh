#!/usr/bin/env bash
# lost_rank.sh PROGRAM HOW SENTENCE: the job must end by itself, not with 0, and say the sentence.
#
# Open MPI's mpirun itself stays now and then after MPI_Abort has ended the ranks, where one of them
# is being finalised: once in some twenty jobs. A job that hangs gets a second try; twice is ours.
set -uo pipefail
for try in 1 2; do
  output=$(timeout -k 5 25 mpirun --allow-run-as-root --oversubscribe -np 3 "$1" "$2" 2>&1)
  status=$?
  stopped=$(sed -n 's/^process \([0-9]*\) stops$/\1/p' <<<"$output" | head -1)
  if [ -n "$stopped" ] && [ "/proc/$stopped/exe" -ef "$1" ]; then  # no other job's: it is ours by number
    kill -KILL "$stopped" 2>/dev/null
  fi
  echo "$output"
  grep -q "$3" <<<"$output" || { echo "nobody said: $3"; exit 1; }
  [ "$status" -eq 124 ] || [ "$status" -eq 137 ] || break
  echo "the job hung, try $try"
done
[ "$status" -ne 124 ] && [ "$status" -ne 137 ] || exit 1
[ "$status" -ne 0 ] || { echo "the job ended as if nothing had happened"; exit 1; }
