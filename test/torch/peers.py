"""Tests bench/peers: its ResNet-50 is torchvision's, its arithmetic is right, a contestant's turn
leaves nothing behind, and wrong uses are refused in one line each."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
sys.path.insert(0, str(root / "bench"))

import laws
import peers
from laws import rank, ranks


def front():
    loader = importlib.machinery.SourceFileLoader("front", str(root / "bench/peers"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("front", loader))
    loader.exec_module(module)
    return module


def names_of_torchvision():
    def norm(at):
        return [f"{at}.weight", f"{at}.bias"]

    yield from ["conv1.weight", *norm("bn1")]
    for stage, blocks in enumerate((3, 4, 6, 3), 1):
        for block in range(blocks):
            at = f"layer{stage}.{block}"
            for number in (1, 2, 3):
                yield from [f"{at}.conv{number}.weight", *norm(f"{at}.bn{number}")]
            if block == 0:
                yield from [f"{at}.downsample.0.weight", *norm(f"{at}.downsample.1")]
    yield from norm("fc")


def the_network_is_torchvisions():
    """The hash of the parameters' names and sizes is that in test/models/replayed_test.cpp."""
    sizes = [each.numel() for each in peers.resnet50().parameters()]
    assert (len(sizes), sum(sizes)) == (161, 25557032), (len(sizes), sum(sizes))
    state = 14695981039346656037
    for name, size in zip(names_of_torchvision(), sizes):
        for letter in f"{name} {size}\n".encode():
            state = (state ^ letter) * 1099511628211 % 2 ** 64
    assert state == 0x85c111f6d517ef85, hex(state)
    assert sum(each.numel() for each in peers.transformer().parameters()) == 12 * 7087872
    assert sum(each.numel() for each in peers.cnn().parameters()) == 428442


def a_row_is_held_against_the_bare_model():
    """Two rounds of two steps on two ranks, of which the slower one counts. In the second round,
    one rank's loss differs from DDP's in the second of three steps."""
    def turn(*ranks_of_it):
        return [{"seconds": seconds, "computes": [each - 0.5 for each in seconds],
                 "cpu": cpu, "bytes": sent, "idle": 0.0, "at_rest": 0.0,
                 "on_the_wire": [sent / 1e6, None if sent == 0 else 2.0],
                 "losses": [3.0, 2.0, 1.0 + sent / 1e6]} for seconds, cpu, sent in ranks_of_it]

    bare = peers.summary("bare", [turn(([1.0, 1.0], 1.0, 0), ([1.0, 1.0], 1.0, 0))] * 2)
    ours = peers.summary("ours", [turn(([1.0, 4.0], 2.0, 1e6), ([2.0, 3.0], 1.0, 5e6)),
                                  turn(([9.0, 1.0], 2.0, 1e6), ([1.0, 2.0], 2.0, 3e6))])

    ddp = {**bare, "name": "DDP 1 MB", "loss": 2.0,
           "losses": [[3.0, 2.0, 2.0], [3.0, 2.0, 6.0], [3.0, 2.0, 2.0], [3.0, 5.0, 4.0]]}

    rows = list(front().rows_of({"contestants": [bare, ours, ddp], "carried": 1.25e6}))
    wanted = {"contestant": "ours", "step_ms": 3000.0, "worst_ms": 9000.0, "of_bare": 3.0,
              "exposed_ms": 2000.0, "computes_of_bare": 5.0, "sent_mb": 5.0, "wire_ms": 4000.0,
              "first_to_last_ms": 2000.0, "cpu_s": 0.75, "at_rest": 0.0,
              "loss": 3.5, "loss_of_ddp": 1.75, "as_ddp": 1}
    assert rows[1] == wanted, rows[1]
    assert rows[0]["exposed_ms"] == rows[0]["sent_mb"] == rows[0]["cpu_s"] == 0, rows[0]


def every_other_round_is_played_backwards():
    playing = {"bare": 0, "ddp": 1, "ours": 2}
    orders = [peers.in_their_order(playing, number) for number in range(3)]
    assert orders == [["bare", "ddp", "ours"], ["ours", "ddp", "bare"], ["bare", "ddp", "ours"]], orders


def turns_are_taken():
    """Ranks use the loopback device, which counts what both send. MPI sends through memory between
    processes of one host, so that tutti's contestant only shows here that it trains and ends."""
    answer = pathlib.Path(os.environ["TUTTI_TEST_SCRATCH"], "answer.json")
    peers.warmup, peers.rest = 1, 0.05
    peers.train({"model": "resnet50", "size": 32, "batch": 2, "steps": 1, "rounds": 1,
                 "only": "ddp 25,horovod", "answer": str(answer)})
    told = json.loads(answer.read_text())
    assert told["parameters"] == 25557032, told
    bare, ddp, horovod = told["contestants"]
    assert [each["name"] for each in (bare, ddp, horovod)] == [
        "no communication", "DDP 25 MB", "tutti Horovod"], told
    gradient = 2 * (ranks - 1) * 4 * told["parameters"]
    assert bare["bytes"] < 0.01 * gradient, told
    assert ddp["bytes"] > 0.99 * gradient, told
    assert ranks > 2 or ddp["losses"] == horovod["losses"] != bare["losses"], told
    assert [len(each) for each in ddp["losses"]] == [peers.warmup + 1] * ranks, told
    assert all(0 < each["computes"] <= each["worst"] for each in told["contestants"]), told
    assert bare["on_the_wire"] is None and 0 < ddp["on_the_wire"] < 10, told


def the_first_byte_and_the_last_are_told_by_the_link():
    """A hundred bytes at the beginning do not count: they are of ranks that wait for each other."""
    wire = peers.Wire()
    wire.seen = [(0.0, 7), (1.0, 107), (2.0, 5_000), (3.0, 100_000), (4.0, 99_990 + 20_017),
                 (5.0, 120_007)]
    assert wire.seconds() == 2.0, wire.seconds()
    wire.seen = [(0.0, 7), (9.0, 9_007)]
    assert wire.seconds() is None


def wrong_uses_are_one_line():
    if rank != 0:
        return

    def says(sentence, *flags, **environment):
        done = subprocess.run([sys.executable, "-B", root / "bench/peers", *flags], check=False,
                              capture_output=True, text=True, env={**os.environ, **environment})
        assert done.returncode == 2 and done.stdout == "", (flags, done)
        lines = done.stderr.splitlines()
        assert lines and all(each.startswith("peers: ") and "Fix: " in each for each in lines), lines
        assert any(sentence in each for each in lines), lines
        return len(lines)

    assert says("invalid choice: 'vgg'", "--model", "vgg") == 1
    assert says("'0' is not 1 or more", "--steps", "0") == 1
    assert says("have 28 pixels per side, not 32", "--model", "cnn", "--size", "32") == 1
    assert says("'1gbps' is not a rate of a link", "--rate", "1gbps") == 1
    assert says("/nowhere/rows: No such file", "--json", "/nowhere/rows", PATH="/nowhere") == 1
    assert says("there is no tc. Fix: apt-get install -y iproute2", PATH="/nowhere",
                PYTHON="/nowhere/python3") >= 6

    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    for words, sentence in (
            ("kernel-peers --rounds 0", "--rounds: '0' is not 1 or more. Fix: "),
            ("kernel-peers --kernels / --only pack", "--kernels / does not measure: "),
            ("kernel-peers --kernels / --only of", "no row has 'of' in its name. Fix: "),
            ("convergence --epochs 0", "--epochs: '0' is not 1 or more. Fix: "),
            ("gpu-suite run tests of", "there is no part 'of'. Fix: one of tests "),
            (f"pytorch_throughput.py --beside {__file__}", "has a line that tutti-train")):
        done = subprocess.run(f"{root}/bench/{words}".split(), check=False, capture_output=True,
                              text=True, env={**os.environ, "PATH": path})
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
        assert sentence in done.stderr and "Fix: " in done.stderr, done


laws.run([the_network_is_torchvisions, a_row_is_held_against_the_bare_model,
          every_other_round_is_played_backwards, turns_are_taken,
          the_first_byte_and_the_last_are_told_by_the_link,
          wrong_uses_are_one_line])
