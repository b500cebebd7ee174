"""Estimators for scikit-learn: regression, classification, and selection of columns."""

import html
import json
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.feature_selection import SelectorMixin
    from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f"the estimators need scikit-learn 1.6 or later ({error}); pip install thinfer[sklearn]"
    ) from error

from . import _thinfer
from ._runs import Run
from ._settings import to_settings
from ._tables import columns_of, is_frame
from ._told import Told

__all__ = ["ThinferClassifier", "ThinferRegressor", "ThinferSelector"]

# Fewer rows say nothing, and scikit-learn has its own words for that.
_FEWEST_ROWS = 2


def _has_text(X: Any) -> bool:
    """Whether a frame has columns that are no numbers, so that it cannot become an array."""
    if not is_frame(X) or isinstance(X, dict):
        return False
    if hasattr(X, "dtypes") and hasattr(X, "columns"):
        kinds = list(X.dtypes)
        if all(getattr(kind, "kind", "O") in "biuf" for kind in kinds):
            return False
    return any(isinstance(cells, list) for cells in columns_of(X).values())


def _seed(random_state: Any) -> int:
    """The seed of the engine: a whole number as it is, else one that is drawn."""
    if isinstance(random_state, (int, np.integer)) and random_state >= 0:
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _threads(n_jobs: int | None) -> int:
    if n_jobs is None or n_jobs == -1:
        return 0
    if not isinstance(n_jobs, (int, np.integer)) or n_jobs < 1:
        raise ValueError(f"`n_jobs` is {n_jobs!r}, but must be -1, None or at least 1")
    return int(n_jobs)


def _names(estimator: BaseEstimator) -> list[str]:
    """Names of the columns: those of the frame, or those that scikit-learn gives to an array."""
    if hasattr(estimator, "feature_names_in_"):
        return [str(name) for name in estimator.feature_names_in_]
    return [f"x{at}" for at in range(estimator.n_features_in_)]


def _free(name: str, taken: list[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _frame(estimator: BaseEstimator, X: Any, reset: bool) -> dict[str, Any]:
    """The columns of a frame with text."""
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    columns = columns_of(X)
    for name, cells in columns.items():
        holes = None in cells if isinstance(cells, list) else bool(np.isnan(cells).any())
        if holes:
            raise ValueError(
                f"Input X contains NaN: column {name!r} has missing values; fill them in, for "
                "example with sklearn.impute.SimpleImputer, or leave the rows out"
            )
    if not len(next(iter(columns.values()), [])):
        raise ValueError("Found array with 0 sample(s); give at least one row")
    return columns


class _Training:
    """Columns to learn from, before it is known how the target is written."""

    def __init__(self, estimator: BaseEstimator, X: Any, y: Any, numeric: bool) -> None:
        if y is None:
            raise ValueError(
                f"{type(estimator).__name__} requires y to be passed, but the target y is None"
            )
        name = getattr(y, "name", None)
        self.columns: dict[str, Any] | None = None
        if _has_text(X):
            self.columns = _frame(estimator, X, reset=True)
            y = column_or_1d(y, dtype=np.float64 if numeric else None, warn=True)
            check_consistent_length(next(iter(self.columns.values())), y)
        else:
            X, y = validate_data(
                estimator,
                X,
                y,
                dtype=np.float64,
                y_numeric=numeric,
                ensure_min_samples=_FEWEST_ROWS,
            )
        self.X, self.y = X, y
        self.names = _names(estimator)
        self.target = _free(name if isinstance(name, str) and name else "y", self.names)

    def table(self, cells: Any) -> _thinfer.Table:
        """The table whose target has these cells."""
        if self.columns is None:
            return _thinfer.Table.from_matrix(self.names, self.X, (self.target, cells))
        columns = {**self.columns, self.target: cells}
        return _thinfer.Table(list(columns), list(columns.values()))


def _rows(estimator: BaseEstimator, X: Any) -> _thinfer.Table:
    """The table to predict."""
    check_is_fitted(estimator)
    if _has_text(X):
        columns = _frame(estimator, X, reset=False)
        return _thinfer.Table(list(columns), list(columns.values()))
    X = validate_data(estimator, X, dtype=np.float64, reset=False)
    return _thinfer.Table.from_matrix(_names(estimator), X)


class _Network(BaseEstimator):
    """What estimators of numbers and of classes have in common."""

    def _fit(self, training: _Training, cells: Any, task: str, likelihood: str | None) -> None:
        settings = {
            "data.kind": "table",
            "data.path": _thinfer.IN_MEMORY,
            "data.target": training.target,
            "data.task": task,
            "seed": _seed(self.random_state),
            "chains": self.chains,
            "model.hidden": list(self.hidden),
            "model.likelihood": likelihood,
        }
        given = to_settings(settings) + to_settings(self.settings or {})
        with Told("fitting", progress=self.verbose) as told:
            run, diagnosis = _thinfer.fit(given, training.table(cells), _threads(self.n_jobs), told)
        self.run_ = Run(run)
        self.diagnostics_ = json.loads(diagnosis)

    def sample_posterior(self, X: Any) -> NDArray[np.float64]:
        """What every sample of the posterior says of every row.

        Parameters
        ----------
        X : array or frame of shape (rows, columns)
            The rows.

        Returns
        -------
        array
            Of numbers the means (samples, rows), without the noise; of classes the probabilities
            (samples, rows, classes).
        """
        return self._members(self._predicted(X))

    def _predicted(self, X: Any) -> _thinfer.Predicted:
        table = _rows(self, X)
        return self.run_._run.predictive(table)


class ThinferRegressor(RegressorMixin, _Network):
    """A Bayesian neural network for a number or a count.

    Several chains sample its posterior and are compared until they agree. They learn from all
    rows.

    Parameters
    ----------
    hidden : tuple of int
        Units of each hidden layer; ``()`` is a linear model.
    likelihood : str, optional
        ``"normal"`` or ``"student-t"``, of counts ``"poisson"`` or ``"negative-binomial"``; by
        default rows that are held out for it choose.
    counts : bool
        Whether the target is a count.
    chains : int
        Chains that are compared.
    settings : dict, optional
        Any other key of a configuration, as ``{"train.stages": 3}`` or nested.
    n_jobs : int, optional
        Threads; None and -1 are one a core. Results do not depend on it.
    random_state : int, RandomState or None
        A whole number is the seed, as in the program.
    verbose : bool
        Whether a line on stderr shows the progress.

    Attributes
    ----------
    run_ : Run
        The run: samples, exports, predictions.
    diagnostics_ : dict
        Whether the chains agree, on rows that they learned from, and the size of the network.
    n_features_in_, feature_names_in_
        As in all estimators.

    Examples
    --------
    >>> from thinfer import ThinferRegressor
    >>> model = ThinferRegressor(random_state=1).fit(X, y)      # doctest: +SKIP
    >>> mean, sd = model.predict(X_new, return_std=True)        # doctest: +SKIP
    """

    def __init__(
        self,
        hidden: tuple[int, ...] = (50,),
        *,
        likelihood: str | None = None,
        counts: bool = False,
        chains: int = 4,
        settings: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.hidden = hidden
        self.likelihood = likelihood
        self.counts = counts
        self.chains = chains
        self.settings = settings
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Learn from all rows.

        Parameters
        ----------
        X : array or frame of shape (rows, columns)
            The inputs. Columns of text and of categories become one input a level.
        y : array of shape (rows,)
            The target.

        Returns
        -------
        ThinferRegressor
            Itself.
        """
        training = _Training(self, X, y, numeric=True)
        cells = np.ascontiguousarray(training.y, dtype=np.float64)
        self._fit(training, cells, "counts" if self.counts else "regression", self.likelihood)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of the posterior, and how far the target lies from it.

        Parameters
        ----------
        X : array or frame of shape (rows, columns)
            The rows.
        return_std : bool
            Whether the standard deviation of the predictive distribution comes too: that of the
            noise and of what is unknown about the network.

        Returns
        -------
        array of shape (rows,), or two of them
            Mean, and standard deviation.
        """
        predicted = self._predicted(X)
        return (predicted.mean(), predicted.sd()) if return_std else predicted.mean()

    def predict_interval(
        self, X: Any, level: float = 0.9
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The interval in which the target lies with a probability.

        Parameters
        ----------
        X : array or frame of shape (rows, columns)
            The rows.
        level : float
            The probability, from 0 to 1.

        Returns
        -------
        low, high : array of shape (rows,)
            Its ends: quantiles of the predictive distribution.
        """
        if not 0 < level < 1:
            raise ValueError(f"`level` is {level}, but must be above 0 and below 1")
        return self._predicted(X).interval(level)

    def _members(self, predicted: _thinfer.Predicted) -> NDArray[np.float64]:
        return predicted.members()[:, :, 0]


class ThinferClassifier(ClassifierMixin, _Network):
    """A Bayesian neural network for classes.

    Several chains sample its posterior and are compared until they agree. They learn from all
    rows.

    Parameters
    ----------
    hidden, chains, settings, n_jobs, random_state, verbose
        As in `ThinferRegressor`.

    Attributes
    ----------
    classes_ : array
        The classes.
    run_, diagnostics_, n_features_in_, feature_names_in_
        As in `ThinferRegressor`.
    """

    def __init__(
        self,
        hidden: tuple[int, ...] = (50,),
        *,
        chains: int = 4,
        settings: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.hidden = hidden
        self.chains = chains
        self.settings = settings
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Learn from all rows.

        Parameters
        ----------
        X : array or frame of shape (rows, columns)
            The inputs. Columns of text and of categories become one input a level.
        y : array of shape (rows,)
            The classes.

        Returns
        -------
        ThinferClassifier
            Itself.
        """
        training = _Training(self, X, y, numeric=False)
        check_classification_targets(training.y)
        self.classes_, numbers = np.unique(training.y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class alone, {self.classes_[0]!r}; give rows of at least two classes"
            )
        words = _class_names(self.classes_)
        self._fit(training, [words[at] for at in numbers], "classification", None)
        # The engine has an order of its own.
        levels = self.run_.classes
        self._order = np.array([levels.index(word) for word in words])
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of every row.

        Parameters
        ----------
        X : array or frame of shape (rows, columns)
            The rows.

        Returns
        -------
        array of shape (rows,)
            The classes.
        """
        most = self.predict_proba(X).argmax(1)
        return self.classes_[most]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of every class, the mean over samples.

        Parameters
        ----------
        X : array or frame of shape (rows, columns)
            The rows.

        Returns
        -------
        array of shape (rows, classes)
            The probabilities, in the order of ``classes_``.
        """
        p = self._predicted(X).mean()
        return p.reshape(-1, len(self.classes_))[:, self._order]

    def _members(self, predicted: _thinfer.Predicted) -> NDArray[np.float64]:
        return predicted.members()[:, :, self._order]


def _class_names(classes: NDArray[Any]) -> list[str]:
    """Names of classes: their own, or numbers where two of them would have the same."""
    names = [str(name).strip() for name in classes]
    # What stands for a missing value in a table cannot be a name.
    missing = {"", "?", "na", "nan", "n/a", "null", "none"}
    if len(set(names)) == len(names) and not missing & {name.lower() for name in names}:
        return names
    return [f"class {at}" for at in range(len(names))]


class ThinferSelector(SelectorMixin, BaseEstimator):
    """Finds the columns that matter for a target: ``thinfer select`` as a selector.

    Parameters
    ----------
    task : {"auto", "regression", "classification"}
        ``"auto"`` takes text, truth values and numbers of at most two values as classes.
    chains : int
        Independent chains, which are also the folds.
    holdout : float
        The share of rows that is kept for the comparison at the end, at most 1/3.
    random_state : int, RandomState or None
        A whole number is the seed, as in the program.
    verbose : bool
        Whether a line on stderr shows the progress.

    Attributes
    ----------
    inclusion_ : array of shape (columns,)
        The share of chains and samples whose network reads the column and has a use for it. It is a
        frequency and no probability.
    effects_ : array of shape (columns,)
        How much the error grows when the column is shuffled; 0 where it is not selected.
    groups_ : array of shape (columns,)
        The variable that each column belongs to, from 0. Here every column is one of its own.
    result_ : dict
        What ``thinfer select --json`` prints.
    n_features_in_, feature_names_in_
        As in all estimators.
    """

    def __init__(
        self,
        task: str = "auto",
        *,
        chains: int = 4,
        holdout: float = 0.2,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.task = task
        self.chains = chains
        self.holdout = holdout
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Find the columns that matter.

        Parameters
        ----------
        X : array or frame of shape (rows, columns)
            The columns. One of text or of categories is selected or dropped as a whole.
        y : array of shape (rows,)
            The target.

        Returns
        -------
        ThinferSelector
            Itself.
        """
        training = _Training(self, X, y, numeric=False)
        y, names = training.y, training.names
        if y.dtype.kind in "biuf":
            cells: Any = np.ascontiguousarray(y, dtype=np.float64)
        else:
            check_classification_targets(y)
            cells = [str(cell) for cell in y]
        with Told("selecting", progress=self.verbose) as told:
            found = _thinfer.select(
                training.table(cells),
                training.target,
                self.task,
                self.chains,
                self.holdout,
                _seed(self.random_state),
                told,
            )
        self.result_ = json.loads(found)
        effects = {effect["name"]: effect["effect"] for effect in self.result_["effects"]}
        chosen = set(self.result_["selected"])
        self.inclusion_ = np.array([self.result_["frequency"].get(name, 0.0) for name in names])
        self.effects_ = np.array([effects.get(name, 0.0) for name in names])
        self.groups_ = np.arange(len(names))
        self._support = np.array([name in chosen for name in names])
        return self

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        return self._support

    def report_html(self) -> str:
        """A page with the result, for a browser or a notebook.

        Returns
        -------
        str
            The page.
        """
        check_is_fitted(self)
        result = self.result_
        held_out = result["heldout"]
        rows = "".join(
            "<tr><td>{}</td><td>{:.1%}</td><td>{:.4g}</td><td>{:.1%}</td><td>{:.1f}</td></tr>".format(
                html.escape(effect["name"]),
                effect["frequency"],
                effect["effect"],
                effect["relative_effect"],
                effect["z"],
            )
            for effect in result["effects"]
        )
        scores = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{value:.4g}</td></tr>"
            for name, value in held_out.items()
        )
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in result["notes"])
        advice = f"<p>{html.escape(result['advice'])}</p>" if "advice" in result else ""
        return (
            "<!doctype html><html lang='en'><meta charset='utf-8'><title>thinfer select</title>"
            "<style>body{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
            "td,th{padding:.2em .8em;text-align:right}"
            "td:first-child,th:first-child{text-align:left}"
            "</style>"
            f"<h1>{html.escape(result['summary'])}</h1>{advice}"
            "<table><tr><th>column</th><th>frequency</th><th>effect</th><th>of the error</th>"
            f"<th>z</th></tr>{rows}</table>"
            "<p>Frequency: share of chains and samples whose network has a use for the column, no "
            "probability. Effect: how much the error on held-out rows grows when the column is "
            "shuffled.</p>"
            f"<h2>Held-out rows</h2><table>{scores}</table><ul>{notes}</ul></html>"
        )
