#!/usr/bin/env bash
# lost_rank.sh PROGRAM HOW SENTENCE: runs PROGRAM on three ranks, of which rank 1 is lost in the way
# that HOW names. The job must end by itself with a status other than 0, and print SENTENCE.
#
# In about one job in twenty, Open MPI's mpirun itself hangs after MPI_Abort has ended the ranks, if
# one of them is in MPI_Finalize. A job that hangs is therefore tried again. If it hangs twice, the
# fault is tutti's.
set -uo pipefail
for try in 1 2; do
  output=$(timeout -k 5 25 mpirun --allow-run-as-root --oversubscribe -np 3 "$1" "$2" 2>&1)
  status=$?
  stopped=$(sed -n 's/^process \([0-9]*\) stops$/\1/p' <<<"$output" | head -1)
  # Kills the stopped rank, unless its number is another process's by now.
  if [ -n "$stopped" ] && [ "/proc/$stopped/exe" -ef "$1" ]; then
    kill -KILL "$stopped" 2>/dev/null
  fi
  echo "$output"
  grep -q "$3" <<<"$output" || { echo "nobody said: $3"; exit 1; }
  [ "$status" -eq 124 ] || [ "$status" -eq 137 ] || break
  echo "the job hung, try $try"
done
[ "$status" -ne 124 ] && [ "$status" -ne 137 ] || exit 1
[ "$status" -ne 0 ] || { echo "the job ended as if nothing had happened"; exit 1; }
