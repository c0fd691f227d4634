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
"${lab[@]}" link 2 100mbit || exit 1
ip netns exec "test$$-2" tc qdisc show dev eth0 | grep "rate 100Mbit" || { echo "host 2's link is as it was"; exit 1; }
refused=$("${lab[@]}" link 3 100mbit 2>&1) && { echo "a host that is not there has a link"; exit 1; }
grep "there is no host '3'" <<<"$refused" || exit 1
again=$("${lab[@]}" up 2 1gbit 2>&1) && { echo "a name was taken twice"; exit 1; }
grep "is up already" <<<"$again" || exit 1
trap - EXIT
"${lab[@]}" down || exit 1
left=$(ip netns; ls -d /run/netns/"test$$"-* /tmp/ompi."test$$"-* 2>/dev/null)
! grep "test$$" <<<"$left" || { echo "down left that behind"; exit 1; }
exit "$status"
