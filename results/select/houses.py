"""Makes tables of house prices for `thinfer select`: four columns matter, the others are noise.

python3 houses.py TABLE.csv --rows 600 --columns 6 --seed 1 --noise 30000 [--classes]
"""

import argparse
import csv
import math
import random

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("table")
arguments.add_argument("--rows", type=int, default=600)
arguments.add_argument("--columns", type=int, default=6)
arguments.add_argument("--seed", type=int, default=1)
arguments.add_argument("--noise", type=float, default=30000, help="standard deviation of the price's noise")
arguments.add_argument("--classes", action="store_true", help="sold or not, instead of the price")
given = arguments.parse_args()

draw = random.Random(given.seed * 1000003 + given.rows * 101 + given.columns)
extra = {"flat": 0, "house": 20000, "villa": 60000}
with open(given.table, "w", newline="") as file:
    out = csv.writer(file)
    noise_names = [f"noise{i + 1}" for i in range(given.columns - 4)]
    out.writerow(["area", "rooms", "age", "kind", *noise_names, "sold" if given.classes else "price"])
    for _ in range(given.rows):
        area = draw.uniform(40, 200)
        rooms = min(max(round(area / 35 + draw.gauss(0, 1)), 1), 9)
        age = draw.uniform(0, 90)
        kind = draw.choices(list(extra), [0.5, 0.35, 0.15])[0]
        price = 2000 * area + 8000 * rooms - 900 * age + extra[kind] + draw.gauss(0, given.noise)
        noise = [f"{draw.gauss(0, 1):.5f}" for _ in noise_names]
        target = f"{price:.0f}"
        if given.classes:
            share = draw.random()
            target = "yes" if price - 250000 + 20000 * math.log(share / (1 - share)) > 0 else "no"
        out.writerow([f"{area:.2f}", rooms, f"{age:.2f}", kind, *noise, target])
