"""Estimators: scikit-learn's own checks, what it composes, and what is ours."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from conftest import QUICK
from thinfer import ThinferClassifier, ThinferRegressor, ThinferSelector

# The checks with reasons why they do not hold; empty where all do.
EXPECTED_FAILURES = {
    "ThinferRegressor": {},
    "ThinferClassifier": {},
    "ThinferSelector": {},
}


def regressor(**more):
    return ThinferRegressor(
        (8,), likelihood="normal", chains=2, settings=QUICK, random_state=1, **more
    )


def classifier(**more):
    return ThinferClassifier((8,), chains=2, settings=QUICK, random_state=1, **more)


@parametrize_with_checks(
    [regressor(), classifier(), ThinferSelector(chains=2, random_state=1)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES[type(estimator).__name__],
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_numbers_are_predicted_with_what_is_unknown(numbers):
    X, y = numbers
    model = regressor().fit(X, y)
    assert is_regressor(model) and model.score(X, y) > 0.8
    mean, sd = model.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(X))
    low, high = model.predict_interval(X, level=0.9)
    assert ((low < mean) & (mean < high)).all() and (sd > 0).all()
    assert 0.75 < np.mean((low < y) & (y < high)) <= 1
    wide = model.predict_interval(X, level=0.99)
    assert (wide[0] < low).all() and (high < wide[1]).all()
    samples = model.sample_posterior(X)
    np.testing.assert_allclose(samples.mean(0), mean, rtol=1e-10)
    assert samples.shape == (len(model.run_), len(y))
    assert model.diagnostics_["chains"] == 2 and model.diagnostics_["predictions"]["r_hat"] > 0
    for level in (0, 1, 1.5):
        with pytest.raises(ValueError, match="`level`"):
            model.predict_interval(X, level=level)


def test_the_same_seed_gives_the_same_bits_on_any_number_of_threads(numbers):
    X, y = numbers
    first = regressor(n_jobs=1).fit(X, y).predict(X)
    np.testing.assert_array_equal(first, regressor(n_jobs=2).fit(X, y).predict(X))
    assert (first != regressor().set_params(random_state=2).fit(X, y).predict(X)).any()
    drawn = regressor().set_params(random_state=np.random.RandomState(4))
    again = regressor().set_params(random_state=np.random.RandomState(4))
    np.testing.assert_array_equal(drawn.fit(X, y).predict(X), again.fit(X, y).predict(X))


def test_classes_keep_their_names_and_their_order(numbers):
    X, _ = numbers
    y = np.array(["b", "a", "10", "9"], dtype=object)[(X[:, 0] > 0) * 2 + (X[:, 1] > 0)]
    model = classifier().fit(X, y)
    assert is_classifier(model)
    assert list(model.classes_) == ["10", "9", "a", "b"]
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1)
    assert model.score(X, y) > 0.8
    assert sorted(model.run_.classes) == ["10", "9", "a", "b"]
    members = model.sample_posterior(X)
    np.testing.assert_allclose(members.mean(0), p, atol=1e-12)


def test_classes_that_look_missing_are_classes(numbers):
    X, _ = numbers
    y = np.where(X[:, 0] > 0, "none", "some")
    assert classifier().fit(X, y).score(X, y) > 0.85


def test_counts_have_their_likelihoods():
    noise = np.random.default_rng(3)
    X = noise.normal(size=(150, 2))
    y = noise.poisson(np.exp(1 + 0.5 * X[:, 0]))
    model = regressor(counts=True).set_params(likelihood="poisson").fit(X, y)
    low, high = model.predict_interval(X)
    assert (low >= 0).all() and (low == np.round(low)).all() and (low <= high).all()
    with pytest.raises(ValueError, match="a count is a whole number"):
        regressor(counts=True).set_params(likelihood="poisson").fit(X, y + 0.5)


@pytest.mark.parametrize("kind", [pandas.DataFrame, polars.DataFrame])
def test_frames_with_text_are_learned_from(columns, kind):
    table = {name: list(cells) for name, cells in columns.items() if name != "price"}
    X, y = kind(table), columns["price"]
    model = regressor().fit(X, y)
    assert list(model.feature_names_in_) == ["area", "kind"]
    assert model.run_.variables == ["area", "kind"]
    assert model.score(X, y) > 0.9
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    holes = kind({**table, "kind": [None, *table["kind"][1:]]})
    with pytest.raises(ValueError, match="'kind' has missing values"):
        model.predict(holes)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(kind({"kind": table["kind"], "area": table["area"]}))


def test_the_target_may_have_the_name_of_a_column():
    X = pandas.DataFrame({"y": np.arange(40.0), "x": np.arange(40.0) % 7})
    y = pandas.Series(np.arange(40.0) % 5, name="y")
    assert regressor().fit(X, y).predict(X).shape == (40,)


def test_a_target_far_from_zero_keeps_its_digits(numbers):
    X, y = numbers
    near = regressor().fit(X, y).predict(X)
    far = regressor().fit(X, 1e6 + y).predict(X)
    np.testing.assert_allclose(far - 1e6, near, atol=1e-4)


def test_estimators_compose(numbers):
    X, y = numbers
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    chosen = make_column_transformer((StandardScaler(), ["a", "b"]))
    model = make_pipeline(chosen, regressor())
    assert cross_val_score(model, frame, y, cv=2).mean() > 0.7
    grid = GridSearchCV(regressor(), {"hidden": [(4,), ()]}, cv=2).fit(X, y)
    assert grid.best_params_["hidden"] in [(4,), ()]
    assert clone(grid.best_estimator_).get_params()["chains"] == 2


def test_a_grid_in_several_processes_is_the_same(numbers):
    X, y = numbers
    one = cross_val_score(regressor(), X, y, cv=2, n_jobs=1)
    np.testing.assert_array_equal(one, cross_val_score(regressor(), X, y, cv=2, n_jobs=2))


def test_settings_are_any_key(numbers):
    X, y = numbers
    model = regressor().set_params(settings={**QUICK, "train": {"epochs": 40}}).fit(X, y)
    assert model.run_.config["train"]["epochs"] == 40
    with pytest.raises(ValueError, match="did you mean `train.epochs`"):
        regressor().set_params(settings={"train.epoch": 40}).fit(X, y)
    with pytest.raises(ValueError, match="at least 10"):
        regressor().fit(X[:5], y[:5])


def selected(**more):
    X, y = make_regression(200, 8, n_informative=2, noise=1, random_state=2, shuffle=False)
    return X, y, ThinferSelector(random_state=1, **more).fit(X, y)


def test_a_selector_finds_what_matters():
    X, y, selector = selected()
    assert list(selector.get_support(indices=True)) == [0, 1]
    assert selector.transform(X).shape == (200, 2)
    assert list(selector.get_feature_names_out()) == ["x0", "x1"]
    assert selector.inclusion_.shape == selector.effects_.shape == selector.groups_.shape == (8,)
    assert (selector.effects_[:2] > 0).all() and (selector.effects_[2:] == 0).all()
    assert (selector.inclusion_[:2] > 0.5).all()
    again = pickle.loads(pickle.dumps(selector))
    np.testing.assert_array_equal(again.transform(X), selector.transform(X))
    page = selector.report_html()
    assert "2 of 8 variables matter" in page and "<td>x0</td>" in page


def test_a_selector_keeps_names_and_frames(columns):
    X = pandas.DataFrame({name: columns[name] for name in ("area", "kind")})
    X["noise"] = np.random.default_rng(5).normal(size=len(X))
    selector = ThinferSelector(chains=2, random_state=1).set_output(transform="pandas")
    chosen = selector.fit(X, columns["price"]).transform(X)
    assert list(chosen.columns) == ["area", "kind"]
    assert list(selector.get_feature_names_out()) == ["area", "kind"]
    assert "<td>area</td>" in selector.report_html()


def test_a_selector_stands_before_another_model():
    X, y = make_classification(
        150,
        20,
        n_informative=2,
        n_redundant=0,
        n_clusters_per_class=1,
        class_sep=2,
        random_state=3,
        shuffle=False,
    )
    names = np.array(["no", "yes"])[y]
    model = make_pipeline(ThinferSelector(chains=2, random_state=1), LogisticRegression())
    assert cross_val_score(model, X, names, cv=2).mean() > 0.85
    with pytest.raises(ValueError, match='"auto", "regression"'):
        ThinferSelector(task="both").fit(X, names)
    with pytest.raises(ValueError, match="at most 1/3"):
        ThinferSelector(holdout=0.5).fit(X, names)
