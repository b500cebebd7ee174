"""One training step of an image network in PyTorch on a GPU: the best that PyTorch gives.

    python benches/pytorch/resnet.py [--cases resnet18:128,resnet18:512,wrn-28-10:128,resnet50:256]

bf16 autocast, channels last, fused SGD with momentum, torch.compile, the whole step in one CUDA graph. Data is
random and lies on the GPU; making a batch is not part of the step, which favours PyTorch. Prints one JSON object.
"""

import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional as F


class Basic(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)) + shortcut)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return F.relu(self.bn3(self.conv3(x)) + shortcut)


class Wide(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, stride, 1, bias=False)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = self.conv1(F.relu(self.bn1(x)))
        y = self.conv2(F.relu(self.bn2(y)))
        return y + (x if self.shortcut is None else self.shortcut(x))


def resnet18():
    layers, inputs = [], 64
    for stage, width in enumerate([64, 128, 256, 512]):
        for block in range(2):
            layers.append(Basic(inputs, width, 2 if stage and not block else 1))
            inputs = width
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*stem, *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)), 32, 10


def resnet50():
    layers, inputs = [], 64
    for stage, (width, count) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(count):
            layers.append(Bottleneck(inputs, width, 2 if stage and not block else 1))
            inputs = 4 * width
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)), 224, 1000


def wide_resnet():
    layers, inputs = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)], 16
    for stage, width in enumerate([160, 320, 640]):
        for block in range(4):
            layers.append(Wide(inputs, width, 2 if stage and not block else 1))
            inputs = width
    head = [nn.BatchNorm2d(640), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(640, 10)]
    return nn.Sequential(*layers, *head), 32, 10


NETWORKS = {"resnet18": resnet18, "resnet50": resnet50, "wrn-28-10": wide_resnet}


def measure(name, batch, rounds=7, replays=20):
    torch.manual_seed(0)
    network, size, classes = NETWORKS[name]()
    network = network.cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, fused=True)
    x = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(classes, (batch,), device="cuda")
    torch._dynamo.reset()
    compiled = torch.compile(network, dynamic=False)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    began = time.time()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.synchronize()
    started = time.time() - began
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(replays):
        graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / replays)
    return {"model": name, "batch": batch, "median_ms": sorted(times)[rounds // 2], "start_s": started}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", default="resnet18:128,resnet18:512,wrn-28-10:128,resnet50:256")
    cases = [case.split(":") for case in parser.parse_args().cases.split(",")]
    torch.backends.cudnn.benchmark = True
    results = []
    for name, batch in cases:
        results.append(measure(name, int(batch)))
        torch.cuda.empty_cache()
    print(
        json.dumps(
            {
                "what": "one training step: compile + CUDA graph, bf16, channels last, fused SGD, no data",
                "torch": torch.__version__,
                "cudnn": torch.backends.cudnn.version(),
                "gpu": torch.cuda.get_device_name(),
                "cases": results,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
