"""Samples of any density whose logarithm and gradient a function gives."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _thinfer

Density = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]


def sample(
    log_density_and_gradient: Density,
    start: ArrayLike,
    *,
    method: str = "nuts",
    draws: int = 1000,
    warm_up: int = 1000,
    chains: int = 4,
    seed: int = 1,
    thin: int = 10,
    step_size: float = 0.01,
) -> NDArray[np.float64]:
    """Sample a density.

    Parameters
    ----------
    log_density_and_gradient : callable
        Gets a point, an array of float64, and returns the logarithm of the density there, up to a
        constant, and its gradient. What it raises ends the sampling.
    start : array of shape (n,)
        Where the chains begin. The density must be finite there.
    method : {"nuts", "mclmc", "sghmc"}
        The sampler.
    draws : int
        Draws of each chain.
    warm_up : int
        Steps before the first draw, in which NUTS and MCLMC learn their step size.
    chains : int
        Chains, one after another.
    seed : int
        All randomness follows from it.
    thin : int
        Steps from one draw to the next, of MCLMC and SGHMC.
    step_size : float
        The step size of SGHMC, below 2 (1 + 0.9) divided by the largest curvature.

    Returns
    -------
    array of shape (chains, draws, n)
        The draws.

    Examples
    --------
    >>> import numpy as np, thinfer
    >>> draws = thinfer.sample(lambda x: (-0.5 * x @ x, -x), np.zeros(2), draws=200, chains=2)
    >>> draws.shape
    (2, 200, 2)
    """
    if not callable(log_density_and_gradient):
        raise TypeError("log_density_and_gradient must be a function of a point")
    point = np.ascontiguousarray(start, dtype=np.float64)
    if point.ndim != 1 or not point.size:
        raise ValueError(
            f"`start` has the shape {point.shape}, but must be one point with at least one number"
        )
    for name, value, least in (
        ("draws", draws, 1),
        ("chains", chains, 1),
        ("thin", thin, 1),
        ("warm_up", warm_up, 0),
    ):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise TypeError(f"`{name}` is {value!r}, but must be a whole number")
        if value < least:
            raise ValueError(f"`{name}` is {value}, but must be at least {least}")

    def density(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        given: Any = log_density_and_gradient(x)
        if not isinstance(given, tuple) or len(given) != 2:
            raise TypeError(
                "the function must return two things, the logarithm of the density and its gradient"
            )
        return float(given[0]), np.ascontiguousarray(given[1], dtype=np.float64)

    settings = {
        "method": method,
        "draws": int(draws),
        "warm_up": int(warm_up),
        "chains": int(chains),
        "seed": int(seed),
        "thin": int(thin),
        "step_size": float(step_size),
    }
    return _thinfer.sample(density, point, settings)
