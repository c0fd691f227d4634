#!/usr/bin/env bash
# lost_link.sh LAB PROGRAM: of three hosts one is cut off. Every rank must end by itself within its deadline of 2 s and
# ten more, those that still hear each other naming the lost one, which names one of them; 77 where this machine cannot
# have a laboratory. What mpirun does meanwhile is its own affair: it does not hear of a host that it has lost.
set -uo pipefail
lab=("$1" --name "cut$$")
said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT
"${lab[@]}" up 3 1gbit || exit $?
trap '"${lab[@]}" down; rm -rf "$said"' EXIT
timeout 40 "${lab[@]}" run sh -c 'exec "$0" is_cut_off "$1" >"$1/$OMPI_COMM_WORLD_RANK" 2>&1' "$2" "$said" &
job=$!
for second in $(seq 40); do
  sleep 1
  "${lab[@]}" on 2 cat /sys/class/net/eth0/operstate 2>/dev/null | grep -q down && break
done
[ "$second" -lt 40 ] || { echo "the link was never taken down"; exit 1; }
sleep 12
grep . "$said"/*
failed=0
for rank in 0 1 2; do
  sentence="rank 1 does not answer"
  [ "$rank" -ne 1 ] || sentence="rank [02] does not answer"
  grep -q "$sentence" "$said/$rank" || { echo "rank $rank never said: $sentence"; failed=1; }
done
for each in /proc/[0-9]*/cmdline; do
  mapfile -d "" words <"$each" && [ "${words[*]}" = "$2 is_cut_off $said" ] || continue
  echo "${words[*]} still runs"
  failed=1
done 2>/dev/null
kill "$job" 2>/dev/null
exit "$failed"
