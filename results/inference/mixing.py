#!/usr/bin/env python3
"""How often a group changes sides between spike and slab, by its size and the width of the spike.

usage: mixing.py [STEPS]

K weights of one group, each with the likelihood of 100 rows of unit noise around the same value;
that value is the one of 0.02, 0.04, ..., 0.5 at which spike and slab are about as probable. Steps are
those of Algorithm 2 (beta1 0.9, tau 0.5), as long as the spike allows, with a draw before each.
"""
import math
import random
import sys

ROWS, SLAB, BETA1, TAU = 100, 0.5, 0.9, 0.5


def flips(spike, value, size, steps):
    """Changes in 1,000 steps, and the mean probability of the slab."""
    spike_decay, slab_decay = 1 / (spike**2 * ROWS), 1 / (SLAB**2 * ROWS)
    step_size = min(0.05, 0.05 * 2 * (1 + BETA1) / (TAU * spike_decay))
    noise = math.sqrt(step_size / ROWS * 2 * (1 - BETA1) / TAU)
    constant = size / 2 * math.log(spike**2 / SLAB**2)
    difference = (1 / spike**2 - 1 / SLAB**2) / 2
    w, v, slab, changes, mean = [0.0] * size, [0.0] * size, True, 0, 0.0
    for _ in range(steps):
        odds = constant + difference * sum(x * x for x in w)
        p = 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0
        mean += p / steps
        drawn = random.random() < p
        if drawn != slab:
            changes += 1
            kick = step_size / (1 + BETA1) * (spike_decay - slab_decay) * (-1 if drawn else 1)
            v = [b + kick * a for a, b in zip(w, v)]
        slab = drawn
        decay = slab_decay if slab else spike_decay
        for i in range(size):
            pull = w[i] - value + decay * w[i]
            v[i] = BETA1 * v[i] - step_size * pull + noise * random.gauss(0, 1)
            w[i] += TAU * v[i]
    return 1000 * changes / steps, mean


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    random.seed(1)
    print("weights  ratio  changes in 1,000 steps  probability of the slab")
    for size in (1, 5, 20):
        for ratio in (2, 4, 10, 30):
            tried = [flips(SLAB / ratio, 0.02 * i, size, steps) for i in range(1, 26)]
            changes, mean = min(tried, key=lambda found: abs(found[1] - 0.5))
            print(f"{size:7d} {ratio:6d} {changes:23.2f} {mean:24.2f}", flush=True)


if __name__ == "__main__":
    main()
