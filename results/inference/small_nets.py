#!/usr/bin/env python3
"""Two small tanh networks: thinfer's defaults for a table against long NUTS of blackjax.

usage: small_nets.py [--program PATH] [--out DIR] [--draws 2500] [--chains 6] [--peers]

Needs jax, blackjax, arviz and numpy. For each network it prints the mean total variation of the
predictive density on the data, in a gap and in extrapolation, for thinfer and for two halves of the
reference (the floor), R-hat of both, and effective draws a second, and a second of a core: other
programs that run beside do not change the latter. With --peers it also times blackjax's MCLMC on the
same density, and takes the total variation of its draws.
"""
import argparse
import csv
import json
import resource
import subprocess
import time
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)
import arviz
import blackjax
import jax.numpy as jnp
import numpy as np

PRIOR_SD, NOISE_SD = 2.5, 0.2


def problem(name):
    rng = np.random.default_rng(7)
    sides = rng.integers(0, 2, 60) * 2 - 1
    first = sides * rng.uniform(0.3, 1.0, 60)
    grid = {"data": np.r_[np.linspace(-1, -0.3, 20), np.linspace(0.3, 1, 20)],
            "gap": np.linspace(-0.2, 0.2, 20),
            "extrapolation": np.r_[np.linspace(-1.8, -1.3, 10), np.linspace(1.3, 1.8, 10)]}
    if name == "1-10-1":
        x = first[:, None]
        y = np.sin(4 * first) + 0.1 * rng.normal(size=60)
        return x, y, {key: points[:, None] for key, points in grid.items()}, 10
    second = rng.uniform(-1, 1, 60)
    x = np.c_[first, second]
    y = np.sin(3 * first) * second + 0.1 * rng.normal(size=60)
    grid = {key: np.c_[points, 0.5 * np.ones(len(points))] for key, points in grid.items()}
    return x, y, grid, 8


def shapes(inputs, hidden):
    return [(hidden, inputs), (hidden,), (1, hidden), (1,)]


def unpack(w, inputs, hidden):
    parts, at = [], 0
    for shape in shapes(inputs, hidden):
        size = int(np.prod(shape))
        parts.append(w[at:at + size].reshape(shape))
        at += size
    return parts, w[at]


def predict(w, x, hidden):
    (w1, b1, w2, b2), log_sigma = unpack(w, x.shape[1], hidden)
    return jnp.tanh(x @ w1.T + b1) @ w2[0] + b2[0], log_sigma


def log_density(x, y, hidden):
    """The posterior of thinfer's defaults: prior as wide as 2.5/sqrt(n) in a layer with n inputs."""
    inputs = x.shape[1]
    sds = np.concatenate([np.full(int(np.prod(shape)), PRIOR_SD / np.sqrt(n)) for shape, n in
                          zip(shapes(inputs, hidden), [inputs, inputs, hidden, hidden])]
                         + [[NOISE_SD]])

    def of(w):
        f, log_sigma = predict(w, x, hidden)
        fit = -0.5 * jnp.sum((y - f) ** 2) * jnp.exp(-2 * log_sigma) - len(y) * log_sigma
        return fit - 0.5 * jnp.sum((w / sds) ** 2)

    return of, len(sds)


def nuts(density, size, chains, draws, seed):
    warm_up = blackjax.window_adaptation(blackjax.nuts, density, target_acceptance_rate=0.9)
    keys = jax.random.split(jax.random.key(seed), chains)
    starts = 0.3 * jax.random.normal(jax.random.key(seed + 1), (chains, size))

    def one(key, start):
        first, second = jax.random.split(key)
        (state, settings), _ = warm_up.run(first, start, num_steps=1000)
        kernel = blackjax.nuts(density, **settings)

        def step(state, key):
            state, _ = kernel.step(key, state)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(second, draws))[1]

    return timed(jax.jit(jax.vmap(one)), keys, starts)


def mclmc(density, size, chains, draws, seed):
    """blackjax's own adaptation, then one draw each 10 moves."""
    keys = jax.random.split(jax.random.key(seed), chains)
    starts = 0.3 * jax.random.normal(jax.random.key(seed + 1), (chains, size))

    def one(key, start):
        k1, k2, k3 = jax.random.split(key, 3)
        state = blackjax.mcmc.mclmc.init(position=start, logdensity_fn=density, rng_key=k1)

        def make(sqrt_diag_cov):
            return blackjax.mcmc.mclmc.build_kernel(
                logdensity_fn=density,
                integrator=blackjax.mcmc.integrators.isokinetic_mclachlan,
                sqrt_diag_cov=sqrt_diag_cov)

        state, settings = blackjax.mclmc_find_L_and_step_size(
            mclmc_kernel=make, num_steps=draws * 5, state=state, rng_key=k2,
            diagonal_preconditioning=True)[:2]
        kernel = blackjax.mclmc(density, L=settings.L, step_size=settings.step_size,
                                sqrt_diag_cov=settings.sqrt_diag_cov)

        def step(state, key):
            def move(state, key):
                return kernel.step(key, state)[0], None
            state, _ = jax.lax.scan(move, state, jax.random.split(key, 10))
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(k3, draws))[1]

    return timed(jax.jit(jax.vmap(one)), keys, starts)


def timed(run, keys, starts):
    """Draws, and what they took without compilation: seconds, and seconds of cores."""
    compiled = run.lower(keys, starts).compile()
    began, worked = time.monotonic(), time.process_time()
    draws = np.asarray(jax.block_until_ready(compiled(keys, starts)))
    return draws, (time.monotonic() - began, time.process_time() - worked)


def thinfer(args, name, x, y, hidden):
    out = args.out / name
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "table.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([f"x{i}" for i in range(x.shape[1])] + ["y", "part"])
        for row in range(len(y)):
            writer.writerow([*map(repr, map(float, x[row])), repr(float(y[row])), "train"])
        # Nothing is tested on: the comparison is with the reference.
        for row in range(2):
            writer.writerow([*map(repr, map(float, x[row])), repr(float(y[row])), "test"])
    (out / "config.toml").write_text(
        f'[data]\nkind = "table"\npath = "{out}/table.csv"\ntarget = "y"\nsplit = "part"\n'
        f"[model]\nhidden = [{hidden}]\n")
    began, worked = time.monotonic(), of_children()
    subprocess.run([args.program, "train", out / "config.toml", "--out", out / "run", "--force",
                    "--quiet", *(f"--set={pair}" for pair in args.set)], check=True)
    seconds = time.monotonic() - began, of_children() - worked
    chains = []
    for chain in sorted((out / "run").glob("chain-*")):
        files = sorted(chain.glob("snapshot-*.safetensors"))
        epochs = [int(file.stem.split("-")[1]) for file in files]
        half = epochs[0] + (epochs[-1] + 1 - epochs[0]) // 2
        kept = [file for file, epoch in zip(files, epochs) if epoch >= half]
        chains.append(np.stack([read_weights(file) for file in kept]))
    return np.stack(chains), seconds


def of_children():
    """Seconds of cores that the programs called so far took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read_weights(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    order = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "noise.log_sigma"]

    def values(name):
        begin, end = header[name]["data_offsets"]
        return np.frombuffer(data[8 + length:][begin:end], "<f4").astype(float)

    return np.concatenate([values(name) for name in order])


def total_variation(first, second, y):
    step = y[1] - y[0]
    return 0.5 * np.abs(first - second).sum(axis=1) * step


def predictive(draws, points, hidden, y, most=3000):
    flat = draws.reshape(-1, draws.shape[-1])
    flat = flat[np.linspace(0, len(flat) - 1, min(most, len(flat))).astype(int)]
    f, log_sigma = jax.vmap(lambda w: predict(w, points, hidden))(flat)
    f, sigma = np.asarray(f), np.exp(np.asarray(log_sigma))
    density = np.zeros((len(points), len(y)))
    for mean, sd in zip(f, sigma):
        density += np.exp(-0.5 * ((y[None] - mean[:, None]) / sd) ** 2) / sd
    return density / (np.sqrt(2 * np.pi) * len(flat))


def agreement(draws, points, hidden):
    f = np.asarray(jax.vmap(jax.vmap(lambda w: predict(w, points, hidden)[0]))(draws))
    ess = [float(arviz.ess(f[:, :, row], method="bulk")) for row in range(f.shape[2])]
    r_hat = [float(arviz.rhat(f[:, :, row])) for row in range(f.shape[2])]
    return float(np.quantile(r_hat, 0.95)), float(np.quantile(ess, 0.05))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="target/release/thinfer")
    parser.add_argument("--out", type=Path, default=Path("runs/small-nets"))
    parser.add_argument("--draws", type=int, default=2500)
    parser.add_argument("--chains", type=int, default=6)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = {}
    for name in ["1-10-1", "2-8-1"]:
        x, y, grid, hidden = problem(name)
        mean, sd, centre, spread = x.mean(0), x.std(0), y.mean(), y.std()
        scaled_x, scaled_y = (x - mean) / sd, (y - centre) / spread
        grid = {key: (points - mean) / sd for key, points in grid.items()}
        density, size = log_density(scaled_x, scaled_y, hidden)
        axis = np.linspace(-8, 8, 1601)
        reference, seconds = nuts(density, size, args.chains, args.draws, 1)
        ours, our_seconds = thinfer(args, name, x, y, hidden)
        rows = {"thinfer": (ours, our_seconds), "blackjax NUTS": (reference, seconds)}
        if args.peers:
            rows["blackjax MCLMC"] = mclmc(density, size, 4, 1000, 3)
        half = args.chains // 2
        of = {}
        for key, points in grid.items():
            right = predictive(reference, points, hidden, axis)
            tv = total_variation(predictive(ours, points, hidden, axis), right, axis).mean()
            floor = total_variation(predictive(reference[:half], points, hidden, axis),
                                    predictive(reference[half:], points, hidden, axis), axis).mean()
            of[key] = {"thinfer": float(tv), "floor": float(floor)}
            if args.peers:
                peer = predictive(rows["blackjax MCLMC"][0], points, hidden, axis)
                tv = total_variation(peer, right, axis).mean()
                of[key]["blackjax MCLMC"] = float(tv)
        on = np.concatenate([grid["data"], grid["gap"]])
        samplers = {}
        for who, (draws, (spent, worked)) in rows.items():
            r_hat, ess = agreement(draws, on, hidden)
            samplers[who] = {"chains": draws.shape[0], "draws": draws.shape[1], "r_hat": r_hat,
                             "ess": ess, "seconds": spent, "core_seconds": worked,
                             "ess_a_second": ess / spent, "ess_a_core_second": ess / worked}
        found[name] = {"total_variation": of, "samplers": samplers}
        print(name, json.dumps(found[name], indent=1), flush=True)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
