#!/usr/bin/env bash
# lab.sh LAB PROGRAM [TRAIN]: tests bench/lab (LAB) on two simulated hosts. Hosts and links must be
# as they were set. PROGRAM's tests of exchanges and aborts must pass on them, and tutti-train
# (TRAIN), if given, must train. LAB must refuse what it cannot do in one line, end what an
# interrupted command has started, and leave nothing behind. Exit status 77: this machine cannot run
# a laboratory.
set -uo pipefail
name=test$$
lab=("$1" --name "$name")
beside=("$1" --name "${name}beside")
said=$("${lab[@]}" up 2 1gbit 2>&1)
status=$?
echo "$said"
[ "$status" -eq 0 ] || exit "$status"
scratch=$(mktemp -d)
trap '"${lab[@]}" down; "${beside[@]}" down 2>/dev/null; rm -rf "$scratch"' EXIT

wrong() { echo "$*"; exit 1; }

# Prints the namespaces of both laboratories, with the rates of their links.
laboratories() {
  local each
  for each in $(ip netns | grep -oE "^$name(beside)?-[a-z0-9]+" | sort); do
    echo "$each" $(tc -n "$each" qdisc show | sed -nE 's/^qdisc tbf .* dev (\w+) .* rate (\w+) .*/\1 \2/p')
  done
}

# refuses STATUS SENTENCE COMMAND…: expects that the command ends with STATUS, prints one line,
# which begins with SENTENCE, and changes no laboratory.
refuses() {
  local expected=$1 sentence=$2 before said status
  shift 2
  before=$(laboratories)
  said=$("$@" 2>&1)
  status=$?
  echo "$said"
  [ "$status" -eq "$expected" ] || wrong "$* ended with $status"
  [[ $said =~ ^"lab: $sentence" && $said != *$'\n'* ]] || wrong "that is not the one line: $sentence"
  [ "$(laboratories)" = "$before" ] || wrong "$* changed a laboratory"
}

# soon COMMAND…: expects that the command succeeds within ten seconds, and repeats it until then.
soon() {
  local tries
  for tries in $(seq 200); do "$@" && return; sleep 0.05; done
  wrong "never: $*"
}

timeout 60 "${lab[@]}" run "$2" --gtest_filter='Apart.Exch*:Apart.AnAbort*' || exit
if [ $# -eq 3 ]; then
  trained=$(timeout 60 "${lab[@]}" run "$3" --model mlp --data synthetic --batch-size 4 --epochs 1 --steps 4) || exit 1
  echo "$trained"
  [[ ${trained##*$'\n'} =~ ^Horovod\ +1\ +[0-9]+\.[0-9]+\  ]] || wrong "that is no epoch of Horovod"
fi

# Each host has its settings, and a core of its own if the machine has two. `run` reports the load
# of other processes.
ranks=$("${lab[@]}" run sh -c 'cd /proc/sys/net/ipv4
  echo $(hostname) $(cat tcp_congestion_control tcp_no_metrics_save) of $OMPI_COMM_WORLD_SIZE $(taskset -cp $$)' \
  2>"$scratch/load") || exit 1
cat "$scratch/load" - <<<"$ranks"
for host in 1 2; do
  grep -q "^$name-$host reno 1 of 2 " <<<"$ranks" || wrong "host $host is not as it was set"
done
[ "$(env -u OMP_NUM_THREADS nproc)" -lt 2 ] || [ "$(grep -oE ' [0-9]+$' <<<"$ranks" | sort -u | wc -l)" -eq 2 ] || wrong "not pinned"
grep -qE '^lab: 2 hosts, reno, [0-9.]+ s; others used [0-9.]+ cores, [0-9.]+ stolen$' "$scratch/load" || wrong "no load"

# Ranks that share one core yield it while they wait.
core=$(taskset -cp $$ | grep -oE '[0-9]+$')
ranks=$(taskset -c "$core" "${lab[@]}" run sh -c 'echo "yields: $OMPI_MCA_mpi_yield_when_idle"' 2>&1) || wrong "$ranks"
[ "$(grep -c "^yields: 1$" <<<"$ranks")" -eq 2 ] || wrong "ranks that share a core spin: $ranks"
grep "^lab: 2 ranks share 1 cores: they are not pinned" <<<"$ranks" || exit 1

"${lab[@]}" link 2 100mbit || exit 1
diff <(laboratories) - <<END || wrong "these links are not those that were set"
$name-1 eth0 1Gbit
$name-2 eth0 100Mbit
$name-switch port1 1Gbit port2 100Mbit
END

# Commands that must be refused, first one by a user who is not root, but may read what root may.
other_user=(setpriv --reuid 65534 --inh-caps +dac_override --ambient-caps +dac_override)
if "${other_user[@]}" true; then
  refuses 77 "namespaces need root. Fix: " "${other_user[@]}" "${beside[@]}" up 2 1gbit
fi
python=$(python3 -c 'import sys; print(sys.executable)')
refuses 77 "there is no ip. Fix: apt-get install -y iproute2" env PATH="$scratch" "$python" "${beside[@]}" up 2 1gbit
ln -s "$(command -v ip)" "$scratch"
refuses 77 "there is no tc. Fix: apt-get install -y iproute2" env PATH="$scratch" "$python" "${beside[@]}" up 2 1gbit
refuses 77 "there is no mpirun. Fix: apt-get install -y openmpi-bin" env PATH="$scratch" "$python" "${lab[@]}" run true
for rate in 0mbit 0.0001bit 1gbps ""; do
  refuses 1 "'$rate' is not a rate of a link. Fix: " "${beside[@]}" up 2 "$rate"
  refuses 1 "'$rate' is not a rate of a link. Fix: " "${lab[@]}" link 1 "$rate"
done
refuses 1 "there is no host '3'. Fix: 1 to 2" "${lab[@]}" link 3 100mbit
refuses 1 "'$name' is up already. Fix: " "${lab[@]}" up 2 1gbit
refuses 2 "there is no command 'up 2'. Fix: one of bench/lab --help" "${lab[@]}" up 2
"${lab[@]}" --help | grep "  bench/lab up N RATE " >/dev/null || wrong "no help"

# An interrupted `run` ends what it has started, and nothing else. The hosts stay.
before=$(laboratories)
on_hosts() { echo $(ip netns pids "$name-1") $(ip netns pids "$name-2"); }
# asleep SECONDS COUNT: whether COUNT processes have exactly the command line `sleep SECONDS.$$`.
asleep() {
  local each words count=0
  for each in /proc/[0-9]*/cmdline; do
    mapfile -d "" words <"$each" && [ "${words[*]}" = "sleep $1.$$" ] && count=$((count + 1))
  done 2>/dev/null
  [ "$count" -eq "$2" ]
}
"${lab[@]}" on 2 sleep "61.$$" &
soon asleep 61 1
spared=$(on_hosts)
"${lab[@]}" run sleep "60.$$" 2>"$scratch/said" &
soon asleep 60 2
kill -INT $!
wait $!
status=$?
cat "$scratch/said"
[ "$status" -eq 130 ] || wrong "an interrupted run ended with $status"
ends() { [ "$(on_hosts)" = "$spared" ]; }
soon ends
[ "$(laboratories)" = "$before" ] || wrong "an interrupted run changed the laboratory"

# An interrupted `up` removes what it has set up so far.
for signal in INT TERM; do
  "${beside[@]}" up 50 1gbit &
  soon test -e "/run/netns/${name}beside-2"
  kill -$signal $!
  wait $!
  status=$?
  [ "$status" -eq $((128 + $(kill -l $signal))) ] || wrong "an interrupted up ended with $status"
  [ "$(laboratories)" = "$before" ] || wrong "an interrupted up left a laboratory"
done

"${lab[@]}" down || exit 1
trap 'rm -rf "$scratch"' EXIT
soon asleep 61 0
left=$(laboratories; ls -d /run/netns/"$name"-* /run/netns/"$name"beside-* /tmp/ompi."$name"-* 2>/dev/null)
[ -z "$left" ] || wrong "down left behind: $left"
