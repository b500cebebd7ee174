"""Samples of densities that are functions of Python."""

import numpy as np
import pytest

import thinfer

MEAN = np.array([1.0, -2.0])
COVARIANCE = np.array([[1.0, 0.3], [0.3, 0.25]])
PRECISION = np.linalg.inv(COVARIANCE)


def normal(x):
    gradient = -PRECISION @ (x - MEAN)
    return 0.5 * (x - MEAN) @ gradient, gradient


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("nuts", {"draws": 1000, "warm_up": 300}),
        ("mclmc", {"draws": 2000, "warm_up": 300}),
        ("sghmc", {"draws": 3000, "warm_up": 500, "step_size": 0.01, "thin": 20}),
    ],
)
def test_mean_and_covariance_are_those_of_the_density(method, settings):
    draws = thinfer.sample(normal, np.zeros(2), method=method, chains=2, **settings)
    assert draws.shape == (2, settings["draws"], 2)
    assert (draws[0] != draws[1]).any(), "chains have noise of their own"
    draws = draws.reshape(-1, 2)
    np.testing.assert_allclose(draws.mean(0), MEAN, atol=0.12)
    np.testing.assert_allclose(np.cov(draws.T), COVARIANCE, atol=0.15)


def test_a_seed_gives_the_same_draws():
    def draw(seed):
        return thinfer.sample(normal, MEAN, draws=20, warm_up=20, chains=1, seed=seed)

    np.testing.assert_array_equal(draw(1), draw(1))
    assert (draw(1) != draw(2)).any()


def test_what_the_function_raises_ends_the_sampling():
    calls = []

    def fails(x):
        calls.append(x)
        if len(calls) == 50:
            raise LookupError("no more")
        return normal(x)

    with pytest.raises(LookupError, match="no more"):
        thinfer.sample(fails, MEAN)
    assert len(calls) == 50

    def interrupts(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        thinfer.sample(interrupts, MEAN)


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (lambda x: 1.0, TypeError, "two things"),
        (lambda x: (0.0, [1.0]), ValueError, "the gradient has 1 numbers"),
        (lambda x: (np.nan, -x), RuntimeError, "not finite at step 0"),
        (None, TypeError, "must be a function"),
    ],
)
def test_what_is_no_density_is_refused(function, error, says):
    with pytest.raises(error, match=says):
        thinfer.sample(function, MEAN, draws=5)


@pytest.mark.parametrize(
    ("more", "error", "says"),
    [
        ({"method": "hmc"}, ValueError, "method"),
        ({"draws": 0}, ValueError, "at least 1"),
        ({"chains": 1.5}, TypeError, "whole number"),
        ({"method": "sghmc", "step_size": -1.0}, ValueError, "must be above 0"),
        ({"start": [[1.0]]}, ValueError, "must be one point"),
    ],
)
def test_bad_arguments_are_refused(more, error, says):
    with pytest.raises(error, match=says):
        thinfer.sample(**{"log_density_and_gradient": normal, "start": MEAN, **more})
