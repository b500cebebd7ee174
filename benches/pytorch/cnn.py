"""One training step of a small convolutional network in PyTorch on the CPU, four ways.

    python benches/pytorch/cnn.py [--threads N] [--steps N] [--warmup N] [--trials N] [--eager]

Data: random images of 28 x 28 x 1 in ten classes. Network: LeNet-5 with ReLU and max pooling,
61,706 weights. A step gathers 128 images, takes the gradient of the mean cross entropy and moves the
weights by plain SGD, which is the work of `cnn/lenet5` in crates/thinfer-engine/benches/cnn.rs.
The variants:

    eager                   modules, autograd, torch.optim.SGD with foreach
    eager_channels_last     the same with images and weights in channels-last layout
    compiled                forward and loss under torch.compile, the optimizer as above
    compiled_channels_last  both

Prints one JSON object. Variants take turns; a time is that of a trial divided by its steps.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time

import torch
from torch import nn

IMAGES, BATCH, RATE = 10_000, 128, 0.01


def network():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )


class Variant:
    def __init__(self, images, classes, compiled, channels_last):
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self.images, self.classes = images.to(memory_format=layout), classes
        self.net = network().to(memory_format=layout)
        loss = nn.CrossEntropyLoss()

        def whole(x, y):
            return loss(self.net(x), y)

        self.loss = torch.compile(whole, fullgraph=True) if compiled else whole
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=RATE, foreach=True)
        self.layout = layout

    def step(self, rows):
        x = self.images[rows].contiguous(memory_format=self.layout)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(x, self.classes[rows])
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=50, help="steps a trial")
    parser.add_argument("--warmup", type=int, default=30, help="steps before the first trial")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--eager", action="store_true", help="leave out torch.compile")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(IMAGES, 1, 28, 28, generator=generator)
    classes = torch.randint(10, (IMAGES,), generator=generator)
    order = torch.randperm(IMAGES, generator=generator).split(BATCH)[:-1]

    variants, skipped, first_losses = {}, {}, {}
    for compiled in (False,) if given.eager else (False, True):
        for channels_last in (False, True):
            name = ("compiled" if compiled else "eager") + ("_channels_last" if channels_last else "")
            try:
                variant = Variant(images, classes, compiled, channels_last)
                losses = [variant.step(order[i % len(order)]).item() for i in range(given.warmup)]
                variants[name], first_losses[name] = variant, losses[-1]
            except Exception as error:  # whatever a compiler can run into; the others still count
                skipped[name] = str(error).strip().splitlines()[0]
                print(f"cnn.py: {name} is skipped: {skipped[name]}", file=sys.stderr)
    spread = max(first_losses.values()) - min(first_losses.values())
    if not spread < 1e-3:
        raise SystemExit(f"the variants compute different losses: {first_losses}")

    times = {name: [] for name in variants}
    for trial in range(given.trials):
        for name, variant in variants.items():
            began = time.perf_counter()
            for i in range(given.steps):
                variant.step(order[(trial * given.steps + i) % len(order)])
            times[name].append((time.perf_counter() - began) * 1e3 / given.steps)
    result = {
        name: {"median_ms": round(statistics.median(t), 4), "best_ms": round(min(t), 4)}
        for name, t in times.items()
    } | {name: {"skipped": why} for name, why in skipped.items()}
    print(json.dumps({
        "what": "one step of LeNet-5 (ReLU, max pooling) on 28 x 28 x 1, batch 128, plain SGD",
        "torch": torch.__version__, "threads": torch.get_num_threads(), "cpu": cpu_model(),
        "steps": given.steps, "trials": given.trials, "variants": result,
    }))


if __name__ == "__main__":
    main()
