#!/usr/bin/env python3
"""Runs the first command of a new user on every table and folder of data.py, and what it is
compared with.

usage: first_try.py FOLDER PROGRAM --json OUT [--only NAME,NAME]

On tables: scikit-learn's HistGradientBoosting and a linear model on the same rows, all at their
defaults. On folders: the settings of hand/NAME.toml.
"""
import argparse
import json
import os
import subprocess
import time
from pathlib import Path

TABLES = {
    "diabetes": "target",
    "breast_cancer": "target",
    "penguins": "species",
    "computers": "price",
    "diamonds": "price",
    "visits": "ofp",
}
FOLDERS = ["digits", "icons", "cifar4k"]
HAND = Path(__file__).resolve().parent / "hand"


def thinfer(program, folder, words):
    """A command of the program, its seconds, and those of the processor."""
    started, before = time.time(), os.times()
    done = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True)
    seconds, after = time.time() - started, os.times()
    if done.returncode != 0:
        raise SystemExit(f"{words}: {done.stderr}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return json.loads(done.stdout), {"seconds": round(seconds, 1), "cpu_seconds": round(used, 1)}


def on_table(program, folder, name, target):
    words = [f"{name}-train.csv", "--target", target, "--set", f"data.test_path={name}-test.csv"]
    plan, _ = thinfer(program, folder, ["train", *words, "--dry-run", "--json"])
    out = ["--out", f"runs/{name}", "--force", "--json"]
    found, times = thinfer(program, folder, ["train", *words, *out])
    beside = found["beside"]
    return {
        "method": plan["lines"][1],
        "estimate": plan["seconds"],
        **times,
        "thinfer": beside["posterior"],
        "constant": beside["constant"],
        "ridge_or_logistic_of_thinfer": beside.get("linear"),
        "coverage90": found["posterior"]["coverage90"],
        "believe": found["verdict"]["believe"],
        **peers(folder, name, target),
    }


def peers(folder, name, target):
    import numpy as np
    import pandas as pd
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegressionCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    train, test = (pd.read_csv(folder / f"{name}-{part}.csv") for part in ["train", "test"])
    x, y, xt, yt = train.drop(columns=target), train[target], test.drop(columns=target), test[target]
    numbers = list(x.select_dtypes("number"))
    texts = [column for column in x if column not in numbers]
    ordinal = make_column_transformer(
        (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), texts), ("passthrough", numbers)
    )
    one_hot = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), texts), (StandardScaler(), numbers)
    )
    regression = pd.api.types.is_numeric_dtype(y)
    boosting = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
    linear = RidgeCV(np.logspace(-4, 4, 17)) if regression else LogisticRegressionCV(max_iter=3000)

    def error(model):
        guess = model.fit(x, y).predict(xt)
        return float(np.sqrt(np.mean((guess - yt) ** 2)) if regression else np.mean(guess != yt))

    return {
        "measure": "RMSE" if regression else "error",
        "hist_gradient_boosting": error(make_pipeline(ordinal, boosting(random_state=0))),
        "linear": error(make_pipeline(one_hot, linear)),
    }


def on_folder(program, folder, name):
    plan, _ = thinfer(program, folder, ["train", name, "--dry-run", "--json"])
    found, times = thinfer(
        program, folder, ["train", name, "--out", f"runs/{name}", "--force", "--json"]
    )
    hand, hand_times = thinfer(
        program, folder, ["train", str(HAND / f"{name}.toml"), "--out", f"runs/{name}-hand", "--force", "--json"]
    )
    short = lambda run: {
        "accuracy": run["posterior"]["accuracy"],
        "nll": run["posterior"]["nll"],
        "pruned": run["sizes"][0]["sparsity"],
    }
    return {
        "method": plan["lines"][1],
        "estimate": plan["seconds"],
        **times,
        "thinfer": short(found),
        "by_hand": {**short(hand), **hand_times},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("program")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--only", default=",".join([*TABLES, *FOLDERS]))
    args = parser.parse_args()
    found = json.loads(args.json.read_text()) if args.json.exists() else {}
    for name in args.only.split(","):
        print(name, flush=True)
        if name in TABLES:
            found[name] = on_table(args.program, args.folder, name, TABLES[name])
        else:
            found[name] = on_folder(args.program, args.folder, name)
        found[name]["load"] = round(os.getloadavg()[0], 1)
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
