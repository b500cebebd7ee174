"""Tables in: every kind of frame is the same table."""

import numpy as np
import pytest

from thinfer._tables import columns_of, to_table

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")

CELLS = {
    "x": [1.5, None, -2.0],
    "n": [1, 2, 3],
    "yes": [True, False, True],
    "kind": ["a", "b", None],
}


def frames():
    return {
        "pandas": pandas.DataFrame(CELLS),
        "polars": polars.DataFrame(CELLS),
        "arrow": pyarrow.table(CELLS),
        "dict": CELLS,
        "stream": Stream(pyarrow.table(CELLS)),
    }


class Stream:
    """Something that has nothing but Arrow's C interface."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("kind", frames())
def test_every_frame_is_the_same_table(kind):
    found = columns_of(frames()[kind])
    assert list(found) == list(CELLS)
    np.testing.assert_array_equal(found["x"], [1.5, np.nan, -2.0])
    np.testing.assert_array_equal(found["n"], [1, 2, 3])
    np.testing.assert_array_equal(found["yes"], [1, 0, 1])
    assert found["kind"] == ["a", "b", None]
    assert len(to_table(frames()[kind])) == 3


def test_categories_are_text_even_of_numbers():
    frame = pandas.DataFrame({"c": pandas.Categorical([1, 2, None])})
    assert columns_of(frame)["c"] == ["1", "2", None]
    cells = polars.Series("c", ["a", "b", None], dtype=polars.Categorical)
    assert columns_of(polars.DataFrame([cells]))["c"] == ["a", "b", None]
    coded = pyarrow.table({"c": pyarrow.array(["a", None]).dictionary_encode()})
    assert columns_of(coded)["c"] == ["a", None]


def test_nullable_numbers_of_pandas_are_numbers():
    frame = pandas.DataFrame({"n": pandas.array([1, None], dtype="Int64")})
    np.testing.assert_array_equal(columns_of(frame)["n"], [1, np.nan])


@pytest.mark.parametrize(
    ("columns", "error", "says"),
    [
        ({"x": [1.0, 2.0], "y": [1.0]}, ValueError, "give columns of equal length"),
        ({"x": [1.0, float("inf")]}, ValueError, "row 2, column `x`: `inf` is not finite"),
        ({"x": [1j, 2j]}, TypeError, "convert it to numbers or to text"),
        ({1: [1.0]}, TypeError, "rename it to '1'"),
        ({"x": [[1.0]]}, ValueError, "has 2 axes"),
        ({}, ValueError, "has no columns"),
        ([[1.0]], TypeError, "must have columns with names"),
    ],
)
def test_what_is_no_table_is_refused(columns, error, says):
    with pytest.raises(error, match=says.replace("(", r"\(")):
        to_table(columns)


def test_columns_with_one_name_are_refused():
    frame = pandas.DataFrame([[1.0, 2.0]], columns=["x", "x"])
    with pytest.raises(ValueError, match="x occur more than once"):
        to_table(frame)


def test_dates_are_refused_with_what_to_do():
    day = pandas.DataFrame({"day": pandas.to_datetime(["2024-01-01"])})
    for frame in (day, polars.from_pandas(day), pyarrow.Table.from_pandas(day)):
        with pytest.raises(TypeError, match="convert it to numbers or to text"):
            to_table(frame)


def test_tensors_come_in_through_dlpack():
    torch = pytest.importorskip("torch")
    cells = torch.tensor([1.0, 2.0], requires_grad=True)
    np.testing.assert_array_equal(columns_of({"x": cells})["x"], [1, 2])
