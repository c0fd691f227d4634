#!/usr/bin/env python3
"""Checks that new policies and strategies are added to the lists that they belong to.

* A policy is known by the assertion in its header, as `static_assert(schedule_policy<in_order>)`.
  It must be in its role's list, so that the role's laws test it. A policy in `elsewhere`, which has
  laws of its own, must be named in the file that tests those.
* A compressor must be in the list of those that devices run, or in `on_hosts_only`.
* A named strategy must be one of tutti-compare's, and have a row in strategies/table.md.

`--self-test` proves that the checks can fail."""

import re
import sys

import sources

# The file that has the list of policies of each role whose laws are typed tests over such a list.
lists = {role: "test/support/policies.hpp"
         for role in ("fusion", "partition", "schedule", "coordination", "compression", "optimizer")}
lists["collective"] = "test/support/collective_laws.hpp"
lists["architecture"] = "test/support/order_laws.hpp"

# Policies with laws of their own, because their role's laws do not fit them: why, and which file
# tests them.
elsewhere = {
    "compression": {"power_sgd": "several rounds of whole tensors: test/compression/power_sgd_test.cpp"},
    "collective": {"native": "what a library adds: test/mpi/oracle_test.cpp",
                   "excluding": "makes no sum: test/collective/collective_test.cpp"},
    "architecture": {"switch_at": "two others in turn: test/simulated/order_of_windows_test.cpp",
                     "replicated": "stands for another, by its compressor and transport: "
                                   "test/core/stream_ordered_test.cpp"},
}

# Compressors whose kernels exist for the host only.
on_hosts_only = {"by_kth_magnitude", "by_magnitude", "dithering", "qsgd"}

# Strategies that tutti-compare cannot train, because it updates its models by SGD.
with_an_optimizer_of_its_own = {"OneBitAdam"}

proof = re.compile(r"(?:static_assert\(|&& )(\w+)_policy<(\w+)|static_assert\(run_time_(fusion)<(\w+)")


def faults(texts: dict[str, str]) -> list[str]:
    found = []
    for role, path in lists.items():
        named = set(re.findall(rf"\b{role}::(\w+)", texts.get(path, "")))
        for header, text in texts.items():
            if not header.startswith(f"include/tutti/{role}/"):
                continue
            for match in proof.finditer(text):
                proven, policy = match[1] or match[3], match[2] or match[4]
                if proven == role and policy not in named | set(elsewhere.get(role, {})):
                    line = text.count("\n", 0, match.start()) + 1
                    found.append(f"{header}:{line}: no law asks {role}::{policy}. "
                                 f"Fix: add it to its list in {path}")
    for role, policies in elsewhere.items():
        for policy, reason in policies.items():
            path = reason.rsplit(": ", 1)[1]
            if not re.search(rf"\b{role}::{policy}\b", texts.get(path, "")):
                found.append(f"{path}: {role}::{policy} is to be tested here, which names no such. "
                             f"Fix: a test, or another file in test/lint/lists.py")
    return found


def without_a_device(texts: dict[str, str]) -> list[str]:
    """Returns a fault for each compressor of the list `compressions` that is neither in the list
    `device_compressions` nor in `on_hosts_only`, or that is in both of these."""
    path = lists["compression"]
    if path not in texts:
        return []
    listed = {name: set(re.findall(r"compression::(\w+)", found[1]))
              for name in ("compressions", "device_compressions")
              if (found := re.search(rf"using {name} =(.*?);", texts[path], re.S))}
    if len(listed) != 2:
        return [f"{path}: there is no list `compressions` or no `device_compressions`. Fix: their names"]
    everywhere, devices = listed["compressions"], listed["device_compressions"]
    return [f"{path}: no device encodes by compression::{name}. Fix: add it to device_compressions, "
            f"or to on_hosts_only in test/lint/lists.py" for name in sorted(everywhere - devices - on_hosts_only)
            ] + [f"{path}: a device encodes by compression::{name}. Fix: take it from on_hosts_only in "
                 f"test/lint/lists.py" for name in sorted(devices & on_hosts_only)]


def with_a_row(table: str) -> set[str]:
    """Returns the strategies that a table describes: those in its first column, and those that a
    row describes beside its own, as in `Mine, Other: …`."""
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    others = re.findall(r"((?:\w+, )*\w+(?: and \w+)?):", table)
    return set(re.findall(r"\w+", " ".join(first + others)))


def unheard_of(texts: dict[str, str]) -> list[str]:
    registry, table = "apps/CMakeLists.txt", "strategies/table.md"
    known = set(re.findall(r"\w+", texts.get(registry, ""))) | with_an_optimizer_of_its_own
    told = with_a_row(texts.get(table, ""))
    named = [(header, name)
             for header, text in texts.items() if header.startswith("strategies/tutti/")
             for name in re.findall(r'string_view name = "(\w+)"', text)]
    return [f"{header}: tutti-compare has no {name}. Fix: add it to a list in {registry}"
            for header, name in named if name not in known
            ] + [f"{header}: {table} does not say what {name} does. Fix: give it a row"
                 for header, name in named if name not in told]


def self_test() -> None:
    listed = {"test/support/policies.hpp": "using schedules = Types<schedule::one, compression::c>;",
              "test/compression/power_sgd_test.cpp": "compression::power_sgd",
              "test/mpi/oracle_test.cpp": "collective::native",
              "test/collective/collective_test.cpp": "collective::excluding<phase>",
              "test/support/order_laws.hpp": "using some = std::tuple<architecture::mean<>>;",
              "test/simulated/order_of_windows_test.cpp": "architecture::switch_at<a, b>",
              "test/core/stream_ordered_test.cpp": "architecture::replicated<>"}
    planted = [("schedule", "static_assert(schedule_policy<one>);", ""),
               ("schedule", "static_assert(schedule_policy<two>);", "no law asks schedule::two"),
               ("schedule", "static_assert(x<one> && schedule_policy<two>);", "schedule::two"),
               ("compression", "static_assert(compression_policy<c<int>>);", ""),
               ("compression", "static_assert(compression_policy<power_sgd>);", ""),
               ("fusion", "static_assert(run_time_fusion<f>);", "no law asks fusion::f"),
               ("architecture", "static_assert(architecture_policy<mean<>>);", ""),
               ("architecture", "static_assert(architecture_policy<switch_at<a, b>>);", ""),
               ("architecture", "static_assert(architecture_policy<m>);", "asks architecture::m."),
               ("partition", "static_assert(schedule_policy<two>);", "")]
    for role, header, sentence in planted:
        sources.expect(faults(listed | {f"include/tutti/{role}/a.hpp": header}), sentence, header)
    registered = {"apps/CMakeLists.txt": "set(strategies One Two Three Four)",
                  "strategies/table.md": "| One, OneBitAdam | as Two; On, Three and Four: all | |"}
    for name, sentence in (("One", ""), ("On", "tutti-compare has no On"), ("OneBitAdam", ""),
                           ("Three", ""), ("Four", ""), ("Two", "does not say what Two does")):
        text = f'static constexpr std::string_view name = "{name}";'
        sources.expect(unheard_of(registered | {"strategies/tutti/a.hpp": text}), sentence, name)
    for one, other, sentence in (("compression::a, compression::b", "compression::a, compression::b", ""),
                                 ("compression::a, compression::b", "compression::a",
                                  "no device encodes by compression::b"),
                                 ("compression::qsgd", "", ""),
                                 ("", "compression::qsgd", "take it from on_hosts_only"),
                                 (None, "", "there is no list `compressions`")):
        name = "others" if one is None else "compressions"
        text = f"using {name} =\n {one};\nusing device_compressions = {other};"
        sources.expect(without_a_device({lists["compression"]: text}), sentence, text)
    elsewhere_no_longer = faults(listed | {"test/mpi/oracle_test.cpp": "collective::natively"})
    sources.expect(elsewhere_no_longer, "collective::native is to be tested here", "a moved test")
    print(f"{len(planted) + 6} planted proofs and lists judged")


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        self_test()
    else:
        texts = sources.read(*sources.code) | sources.read("apps/CMakeLists.txt", "strategies/table.md")
        sources.finish(faults(texts) + without_a_device(texts) + unheard_of(texts))
