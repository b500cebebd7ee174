"""Reads the event files of a run with TensorBoard and compares them with history.csv, also after the run was killed and
went on.

    pip install tensorboard
    python tests/interop/check_events.py target/release/thinfer
"""

import csv
import pathlib
import subprocess
import sys
import tempfile
import time

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

CURVES = {
    "train/loss": "loss",
    "train/step_size": "step_size",
    "test/accuracy": "test_accuracy",
    "test/nll": "test_nll",
    "network/pruned": "sparsity",
    "network/inputs": "live_inputs",
    "network/work": "work",
}


def compare(run, reader=None):
    """Every number of every chain; `reader` has read the files before."""
    chains = {}
    with open(run / "history.csv") as table:
        for row in csv.DictReader(table):
            chains.setdefault(row["chain"], []).append(row)
    points = 0
    for chain, rows in chains.items():
        events = reader or EventAccumulator(str(run / f"tensorboard/chain-{chain}"), size_guidance={"scalars": 0})
        events.Reload()
        for tag, column in CURVES.items():
            wanted = {int(row["epoch"]) + 1: float(row[column]) for row in rows if row[column]}
            if not wanted:
                assert tag not in events.Tags()["scalars"], f"{tag} has points and {column} has none"
                continue
            scalars = events.Scalars(tag)
            steps = [scalar.step for scalar in scalars]
            assert steps == sorted(wanted), f"chain {chain}, {tag}: steps {steps}"
            for scalar in scalars:
                number = wanted[scalar.step]
                assert abs(scalar.value - number) <= 1e-6 * abs(number), (tag, scalar, number)
            times = [scalar.wall_time for scalar in scalars]
            assert times == sorted(times), f"{tag}: time runs backwards"
            points += len(scalars)
    return f"{len(chains)} chains, {points} points"


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    place = pathlib.Path(tempfile.mkdtemp(prefix="thinfer-events-"))
    config = pathlib.Path(__file__).resolve().parents[2] / "configs/shapes.toml"
    small = ["train.epochs=24", "data.train_rows=1000", "data.test_rows=200", "train.tensorboard=true", "chains=2"]
    settings = [word for setting in small for word in ("--set", setting)]
    run = place / "run"
    command = [program, "train", config, *settings, "--device", "cpu", "--out", run, "-q"]
    begun = subprocess.Popen([*command, "--set", "train.checkpoint_steps=40"], stdout=subprocess.DEVNULL)
    folder = run / "tensorboard/chain-0"
    # A reader that is at work while the run is killed and goes on, as a browser's is.
    reader = None
    while begun.poll() is None:
        if folder.is_dir() and any(folder.iterdir()):
            reader = reader or EventAccumulator(str(folder), size_guidance={"scalars": 0})
            reader.Reload()
            if "train/loss" in reader.Tags()["scalars"] and len(reader.Scalars("train/loss")) > 8:
                begun.kill()
        time.sleep(0.05)
    begun.wait()
    print("killed after", len(reader.Scalars("train/loss")), "epochs of chain 0")
    subprocess.run([*command, "--set", "train.checkpoint_steps=40", "--resume"], check=True, stdout=subprocess.DEVNULL)
    print("a reader that starts afterwards:", compare(run))
    reader.Reload()
    steps = [scalar.step for scalar in reader.Scalars("train/loss")]
    assert steps == list(range(1, 25)), f"a reader that was at work all the time has {steps}"
    print("a reader that was at work all the time: every epoch once")


if __name__ == "__main__":
    main()
