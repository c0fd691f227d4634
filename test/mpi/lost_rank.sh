#!/usr/bin/env bash
# lost_rank.sh PROGRAM HOW SENTENCE: the job must end by itself, not with 0, and say the sentence.
set -uo pipefail
output=$(timeout -k 5 60 mpirun --allow-run-as-root --oversubscribe -np 3 "$1" "$2" 2>&1)
status=$?
stopped=$(sed -n 's/^process \([0-9]*\) stops$/\1/p' <<<"$output" | head -1)
if [ -n "$stopped" ] && [ "/proc/$stopped/exe" -ef "$1" ]; then  # no other job's: it is ours by number
  kill -KILL "$stopped" 2>/dev/null
fi
echo "$output"
[ "$status" -ne 124 ] && [ "$status" -ne 137 ] || { echo "the job hung"; exit 1; }
[ "$status" -ne 0 ] || { echo "the job ended as if nothing had happened"; exit 1; }
grep -q "$3" <<<"$output" || { echo "nobody said: $3"; exit 1; }
