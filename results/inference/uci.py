#!/usr/bin/env python3
"""Five UCI tables, standard splits: thinfer's defaults for a table, or a peer.

usage: uci.py FOLDER [--sets yacht,energy] [--splits 0-4] [--who thinfer|bde] [--program PATH]
              [--out DIR] [--set KEY=VALUE]...

FOLDER has NAME.csv, whose target is `y`, and NAME-splits.json with the test rows of each split.
It prints a line for each split: RMSE, NLL, coverage of 90 % intervals, R-hat, seconds.
"""
import argparse
import csv
import json
import math
import subprocess
import sys
import time
from pathlib import Path


def tables(folder, name, split):
    with open(folder / f"{name}.csv", newline="") as file:
        rows = list(csv.reader(file))
    splits = json.loads((folder / f"{name}-splits.json").read_text())
    return rows[0], rows[1:], set(splits["test_rows_of_split"][split])


def run_thinfer(args, name, split):
    header, rows, test = tables(args.folder, name, split)
    out = args.out / f"{name}-{split}"
    out.mkdir(parents=True, exist_ok=True)
    table = out / "table.csv"
    with open(table, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*header, "part"])
        for at, row in enumerate(rows):
            writer.writerow([*row, "test" if at in test else "train"])
    config = out / "config.toml"
    config.write_text(
        f'[data]\nkind = "table"\npath = "{table}"\ntarget = "y"\nsplit = "part"\n'
    )
    settings = [f"--set={pair}" for pair in args.set]
    began = time.monotonic()
    command = [args.program, "train", config, "--out", out / "run", "--force", "--quiet", *settings]
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.monotonic() - began
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        raise SystemExit(f"{name} {split}: exit code {done.returncode}")
    found = json.loads((out / "run" / "evaluation.json").read_text())
    scores, agreement = found["posterior"], found["convergence"]["predictions"] or {}
    return {
        "rmse": math.sqrt(scores["mse"]),
        "nll": scores["nll"],
        "coverage90": scores["coverage90"],
        "r_hat": agreement.get("r_hat"),
        "ess": agreement.get("bulk_ess"),
        "seconds": seconds,
    }


def run_bde(args, name, split):
    """sklearn-contrib-bde: MILE's package, with its own defaults for regression."""
    import numpy as np
    from sklearn.preprocessing import StandardScaler
    from bde import BdeRegressor

    header, rows, test = tables(args.folder, name, split)
    values = np.array([[float(cell) for cell in row] for row in rows])
    at = header.index("y")
    x, y = np.delete(values, at, axis=1), values[:, at]
    chosen = np.array([row in test for row in range(len(rows))])
    scale_x, scale_y = StandardScaler().fit(x[~chosen]), StandardScaler().fit(y[~chosen, None])
    train_x = scale_x.transform(x[~chosen]).astype(np.float32)
    test_x = scale_x.transform(x[chosen]).astype(np.float32)
    train_y = scale_y.transform(y[~chosen, None]).astype(np.float32)[:, 0]
    settings = dict(pair.split("=", 1) for pair in args.set)
    settings = {key: json.loads(value) for key, value in settings.items()}
    began = time.monotonic()
    model = BdeRegressor(**settings)
    model.fit(x=train_x, y=train_y)
    raw = np.asarray(model.predict(test_x, raw=True), dtype=np.float64)
    seconds = time.monotonic() - began
    raw = raw.reshape(-1, *raw.shape[-2:])
    mean, sd = raw[..., 0], np.logaddexp(0.0, raw[..., 1]) + 1e-6
    spread = float(scale_y.scale_[0])
    truth = ((y[chosen] - scale_y.mean_[0]) / spread)[None, :]
    logs = -0.5 * ((truth - mean) / sd) ** 2 - np.log(sd) - 0.5 * math.log(2 * math.pi)
    top = logs.max(axis=0)
    nll = -(top + np.log(np.exp(logs - top).mean(axis=0))).mean() + math.log(spread)
    rmse = math.sqrt(((mean.mean(axis=0) - truth[0]) ** 2).mean()) * spread
    from math import erf
    below = np.vectorize(lambda z: 0.5 * (1 + erf(z / math.sqrt(2))))((truth - mean) / sd)
    share = below.mean(axis=0)
    coverage = float(((share > 0.05) & (share < 0.95)).mean())
    return {"rmse": rmse, "nll": float(nll), "coverage90": coverage, "r_hat": None, "ess": None,
            "seconds": seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", default="yacht,boston,energy,concrete,wine")
    parser.add_argument("--splits", default="0-4")
    parser.add_argument("--who", choices=["thinfer", "bde"], default="thinfer")
    parser.add_argument("--program", default="target/release/thinfer")
    parser.add_argument("--out", type=Path, default=Path("runs/uci"))
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    args = parser.parse_args()
    first, _, last = args.splits.partition("-")
    splits = range(int(first), int(last or first) + 1)
    found = {}
    for name in args.sets.split(","):
        for split in splits:
            scores = (run_bde if args.who == "bde" else run_thinfer)(args, name, split)
            found.setdefault(name, []).append(scores)
            cells = " ".join(
                f"{key} {value:.4g}" for key, value in scores.items() if value is not None
            )
            print(name, split, cells, flush=True)
        mean = {
            key: sum(values) / len(values)
            for key in scores
            if (values := [s[key] for s in found[name] if s[key] is not None])
        }
        print(name, "mean", " ".join(f"{k} {v:.4g}" for k, v in mean.items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"set": args.set, "who": args.who, "found": found}, indent=1))


if __name__ == "__main__":
    main()
