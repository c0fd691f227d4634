#!/usr/bin/env bash
# lost_link.sh LAB PROGRAM: takes down the link of one of three hosts. Every rank must end by itself
# within its deadline of 2 s and ten more. The two ranks that still reach each other must name the
# lost rank, which must name one of them. What mpirun does is not tested, because it does not learn
# that it has lost a host. Exit status 77: this machine cannot run a laboratory.
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
