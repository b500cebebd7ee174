"""Images a second that a PyTorch DataLoader makes from a folder of JPEG files.

    python benches/pytorch/jpeg.py FOLDER [--workers N] [--batch N] [--rounds N]

FOLDER has train/CLASS/*.jpg, as `cargo run --release -p thinfer-tools --bin jpeg -- FOLDER` writes.
torchvision's ImageFolder with RandomResizedCrop(224) and RandomHorizontalFlip, left as bytes
(PILToTensor), since thinfer normalises in another place too. Workers stay between rounds, and the
first round, in which they start, is not counted. Prints one JSON object.
"""

import argparse
import json
import platform
import statistics
import time

import PIL
import torch
import torchvision
from torchvision import transforms


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    transform = transforms.Compose([
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.PILToTensor(),
    ])
    images = torchvision.datasets.ImageFolder(options.folder + "/train", transform)
    loader = torch.utils.data.DataLoader(
        images, options.batch, shuffle=True, num_workers=options.workers, persistent_workers=True)
    speeds = []
    for _ in range(options.rounds + 1):
        begun = time.perf_counter()
        count = sum(len(labels) for _, labels in loader)
        speeds.append(count / (time.perf_counter() - begun))
    speeds = speeds[1:]
    print(json.dumps({
        "images": len(images),
        "workers": options.workers,
        "batch": options.batch,
        "median": statistics.median(speeds),
        "best": max(speeds),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "pillow": PIL.__version__,
        "processor": platform.processor() or platform.machine(),
    }))


if __name__ == "__main__":
    main()
