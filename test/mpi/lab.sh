#!/usr/bin/env bash
# lab.sh LAB PROGRAM: sums and failures of the program's tests on two hosts of a laboratory of its own, which leaves
# nothing behind; 77 where this machine cannot have one.
set -uo pipefail
lab=("$1" --name "test$$")
said=$("${lab[@]}" up 2 1gbit 2>&1)
status=$?
echo "$said"
[ "$status" -eq 0 ] || exit "$status"
trap '"${lab[@]}" down' EXIT
timeout 60 "${lab[@]}" run "$2" --gtest_filter='Apart.Exch*:Apart.AnAbort*'
status=$?
again=$("${lab[@]}" up 2 1gbit 2>&1) && { echo "a name was taken twice"; exit 1; }
grep "is up already" <<<"$again" || exit 1
trap - EXIT
"${lab[@]}" down || exit 1
left=$(ip netns; ls -d /run/netns/"test$$"-* /tmp/ompi."test$$"-* 2>/dev/null)
! grep "test$$" <<<"$left" || { echo "down left that behind"; exit 1; }
exit "$status"
