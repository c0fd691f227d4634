#!/usr/bin/env python3
"""Measures how many images per second PyTorch trains on one GPU, and prints a JSON line for each
network: ResNet-50 in bf16, and ResNet-20 and tutti's two small networks in fp32 without TF32. The
layout is NHWC, the optimizer momentum SGD, and one batch stays on the device; the host waits only
for the last step.

    bench/pytorch_throughput.py [--beside FILE]

FILE holds the lines that `tutti-train --data one-batch --json` wrote for the same networks. Their
rates, from the median iteration, are then printed with PyTorch's, and as a share of it."""

import argparse
import json
import sys
import time

from flags import Flags

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:
    print("pytorch_throughput: this Python has no torch, so nothing is measured")
    sys.exit(0)

warmup, measured = 10, 30


class Residual(nn.Module):
    def __init__(self, main, shortcut):
        super().__init__()
        self.main, self.shortcut = main, shortcut

    def forward(self, x):
        return functional.relu(self.main(x) + self.shortcut(x))


class Subsample(nn.Module):
    """A shortcut without parameters: takes every second pixel, and adds channels of zeros."""

    def __init__(self, more):
        super().__init__()
        self.more = more

    def forward(self, x):
        return functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.more))


def convolve(before, after, kernel, stride=1):
    return [nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(after)]


def basic(before, width, stride):
    main = nn.Sequential(*convolve(before, width, 3, stride), nn.ReLU(), *convolve(width, width, 3))
    return Residual(main, nn.Identity() if stride == 1 else Subsample(width - before))


def bottleneck(before, width, stride):
    main = nn.Sequential(*convolve(before, width, 1), nn.ReLU(),
                         *convolve(width, width, 3, stride), nn.ReLU(),
                         *convolve(width, 4 * width, 1))
    same = before == 4 * width
    return Residual(main, nn.Identity() if same else
                    nn.Sequential(*convolve(before, 4 * width, 1, stride)))


def stages(block, widen, before, width, counts):
    for stage, count in enumerate(counts):
        for number in range(count):
            yield block(before, width << stage, 2 if stage > 0 and number == 0 else 1)
            before = widen * (width << stage)


def resnet50():
    return nn.Sequential(*convolve(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
                         *stages(bottleneck, 4, 64, 64, (3, 4, 6, 3)),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def resnet20():
    return nn.Sequential(*convolve(3, 16, 3), nn.ReLU(), *stages(basic, 1, 16, 16, (3, 3, 3)),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def cnn():
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(16, 16, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
                         nn.Conv2d(16, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
                         nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Flatten(),
                         nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256),
                         nn.ReLU(), nn.Linear(256, 10))


# The networks that bench/gpu-suite trains with tutti-train: network, precision, batch, image,
# classes.
networks = [(resnet50, "bf16", 256, (3, 224, 224), 1000), (resnet20, "fp32", 128, (3, 32, 32), 10),
            (cnn, "fp32", 32, (1, 28, 28), 10), (mlp, "fp32", 32, (1, 28, 28), 10)]


def images_per_second(network, precision, batch, image, classes):
    model = network().to("cuda", memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, *image).to("cuda", memory_format=torch.channels_last)
    labels = torch.randint(classes, (batch,)).to("cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    for _ in range(warmup):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(measured):
        step()
    torch.cuda.synchronize()
    return batch * measured / (time.perf_counter() - begin)


def rates_of_tutti(file):
    """Returns images a second by model, from the last line of each run, which covers all of it."""
    rates = {}
    for line in map(json.loads, file or []):
        images = line["batch_size"] * (line["ranks"] - line["servers"])
        rates[line["model"]] = 1000 * images / line["iteration_ms"]["median"]
    return rates


def main():
    parser = Flags("pytorch_throughput", __doc__)
    parser.add_argument("--beside", type=argparse.FileType())
    beside = parser.parse_args().beside
    try:
        ours = rates_of_tutti(beside)
    except (ValueError, LookupError, TypeError):
        parser.error(f"--beside {beside.name} has a line that tutti-train --json has not written")
    if not torch.cuda.is_available():
        print("pytorch_throughput: torch sees no GPU, so nothing is measured")
        return
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    for network, precision, batch, image, classes in networks:
        rate = images_per_second(network, precision, batch, image, classes)
        tutti = ours.get(network.__name__)
        print(json.dumps({"framework": "pytorch", "version": torch.__version__,
                          "model": network.__name__, "precision": precision, "batch_size": batch,
                          "samples_per_second": rate, "tutti_samples_per_second": tutti,
                          "tutti_over_pytorch": tutti and tutti / rate}), flush=True)


if __name__ == "__main__":
    main()
