"""What the tests share: small tables, and settings that take no time."""

import numpy as np
import pytest

# A sampler with few steps: what is tested here is the way in and out, not the posterior.
QUICK = {"train.stages": 1, "train.samples_per_cycle": 10, "train.epochs": 30, "method.moves": 10}


@pytest.fixture
def quick():
    return dict(QUICK)


@pytest.fixture
def numbers():
    """Inputs and a target that two of three of them make."""
    noise = np.random.default_rng(1)
    X = noise.normal(size=(120, 3))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * noise.normal(size=120)
    return X, y


@pytest.fixture
def columns():
    """The columns of a table with a category, as a dict."""
    noise = np.random.default_rng(2)
    area = noise.uniform(20, 200, 150)
    kind = noise.choice(["flat", "house", "villa"], 150)
    price = 1e3 * area + 2e4 * (kind == "villa") + 5e3 * noise.normal(size=150)
    return {"area": area, "kind": kind.astype(object), "price": price}
