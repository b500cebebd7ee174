"""Trains a Bayesian neural network and prunes it in the same run.

``train`` and ``load`` give runs, ``ThinferRegressor``, ``ThinferClassifier`` and
``ThinferSelector`` are estimators of scikit-learn, and ``sample`` samples any density.

Nothing else is imported before it is asked for: NumPy, scikit-learn and PyTorch take longer than
this package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._thinfer import __version__

if TYPE_CHECKING:
    from ._runs import Run, load, train
    from ._sampling import sample
    from ._told import ThinferWarning
    from .sklearn import ThinferClassifier, ThinferRegressor, ThinferSelector

_WHERE = {
    "Run": "_runs",
    "ThinferClassifier": "sklearn",
    "ThinferRegressor": "sklearn",
    "ThinferSelector": "sklearn",
    "ThinferWarning": "_told",
    "load": "_runs",
    "sample": "_sampling",
    "train": "_runs",
}

__all__ = [
    "Run",
    "ThinferClassifier",
    "ThinferRegressor",
    "ThinferSelector",
    "ThinferWarning",
    "__version__",
    "load",
    "sample",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'thinfer' has no attribute {name!r}")
    value = getattr(import_module(f".{_WHERE[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
