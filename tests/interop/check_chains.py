"""Chains of thinfer in ArviZ: groups, shapes, and R-hat and effective sample sizes as thinfer has them.

    cargo build --release
    python tests/interop/check_chains.py target/release/thinfer

Needs `arviz`, `xarray` and `zarr` (checked with 0.23, 2026.9 and 3.1). Small runs are trained in a folder
that goes away: numbers with learned noise, and classes.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import arviz
import numpy
import xarray

LENGTH = ["chains=3", "train.epochs=60", "train.samples_per_cycle=60", "data.test_rows=120", "data.train_rows=80"]
CASES = {
    "numbers": ["data.kind=example1", "data.columns=5", "model.noise=learned", "schedule.step_size.value=0.003"],
    "classes": ["data.kind=example3", "data.columns=5"],
}
# Of sums that are taken in another order.
LIMIT = 1e-6
# Of an even number of draws the two beside the median are equally far from it. Rounding decides which of them comes
# first when R-hat ranks these distances.
LIMIT_OF_RANKS = 5e-3


def run(program, folder, *words):
    done = subprocess.run([program, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def close(name, got, want, limit=LIMIT):
    worst = numpy.abs(numpy.asarray(got, float) - numpy.asarray(want, float)).max()
    good = bool(worst <= limit * max(1.0, numpy.abs(want).max()))
    print(f"  {name:42} {worst:.1e}{'' if good else '  DIFFERS'}")
    return good


def agreement(values):
    """R-hat and both sizes of an array over chain, draw and perhaps rows."""
    data = values.rename("v").to_dataset()
    return [numpy.atleast_1d(f["v"].values) for f in (arviz.rhat(data), arviz.ess(data), arviz.ess(data, method="tail"))]


def compare(name, found, values):
    wanted = [found["r_hat"], found["bulk_ess"], found["tail_ess"]]
    names = ["R-hat", "ESS, bulk", "ESS, tails"]
    for what, got, want, q in zip(names, agreement(values), wanted, [0.95, 0.05, 0.05], strict=True):
        # Of several rows thinfer tells what 5 % of them are worse than.
        yield close(f"{what} of {name}", numpy.quantile(got, q), want, LIMIT_OF_RANKS if q == 0.95 else LIMIT)


def check(program, case, settings):
    with tempfile.TemporaryDirectory() as folder:
        words = [word for setting in ["method.kind=sghmc", *settings, *LENGTH] for word in ("--set", setting)]
        Path(folder, "run.toml").write_text("")
        run(program, folder, "train", "run.toml", "--quiet", "--out", "run", *words)
        wanted = json.loads(Path(folder, "run/evaluation.json").read_text())
        run(program, folder, "export", "run", "--format", "arviz", "--with-burn-in")
        tree = xarray.open_datatree(Path(folder, "run/posterior.zarr"), engine="zarr")
        data = arviz.InferenceData.from_datatree(tree)
        convergence = wanted["convergence"]
        print(f"{case}: {', '.join(data.groups())}")
        chains, draws = convergence["chains"], convergence["samples"]
        assert data.posterior.sizes["chain"] == chains and data.posterior.sizes["draw"] == draws
        assert data.warmup_posterior.sizes["draw"] == 60 - draws
        rows = data.observed_data.sizes["row"]
        yield from compare("the log-likelihood", convergence["log_likelihood"], data.log_likelihood.y.mean("row"))
        # As many rows as thinfer compares, evenly spread.
        taken = [row * rows // min(rows, 100) for row in range(min(rows, 100))]
        predicted = data.posterior_predictive
        if case == "classes":
            truth = data.observed_data.y
            means = predicted.probability.isel({"class": truth}).isel(row=taken)
            likelihood = numpy.log(predicted.probability.isel({"class": truth}))
            yield close("log-likelihood of probabilities", likelihood.transpose(*data.log_likelihood.y.dims), data.log_likelihood.y)
            assert list(predicted["class"].values) == ["0", "1"], predicted["class"]
        else:
            means = predicted["mean"].isel(row=taken)
            sigma = numpy.log(predicted.sigma)
            z = (data.observed_data.y - predicted["mean"]) / predicted.sigma
            likelihood = -0.5 * z**2 - sigma - 0.5 * numpy.log(2 * numpy.pi)
            yield close("log-likelihood of means and noise", likelihood.transpose(*data.log_likelihood.y.dims), data.log_likelihood.y, 1e-4)
            yield from compare("the noise", convergence["log_sigma"], sigma)
            told = arviz.summary(data, var_names=["noise.log_sigma"], round_to=12)
            yield close("R-hat of arviz.summary", told["r_hat"].iloc[0], convergence["log_sigma"]["r_hat"], LIMIT_OF_RANKS)
        yield from compare("predictions", convergence["predictions"], means)
        arviz.loo(data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    program = Path(sys.argv[1]).resolve()
    good = [ok for case, settings in CASES.items() for ok in check(program, case, settings)]
    sys.exit(0 if all(good) else "numbers differ")
