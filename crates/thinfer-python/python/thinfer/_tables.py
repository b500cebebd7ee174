"""Tables of Python as tables of the engine.

Frames are taken apart column by column, so that pandas, polars and Arrow are asked for nothing but
arrays, and none of them has to be installed.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._thinfer import Table


def is_frame(data: Any) -> bool:
    """Whether `data` has named columns."""
    return (
        isinstance(data, Mapping)
        or (hasattr(data, "columns") and hasattr(data, "dtypes"))
        or hasattr(data, "__arrow_c_stream__")
    )


def columns_of(data: Any) -> dict[str, Any]:
    """The columns of a frame by name, each as an array, or as a list of text and None."""
    if isinstance(data, Mapping):
        return {_name(name): _cells(name, cells) for name, cells in data.items()}
    module = type(data).__module__.split(".")[0]
    if module == "polars":
        return {name: _polars(data[name]) for name in data.columns}
    if hasattr(data, "columns") and hasattr(data, "dtypes"):
        names = [_name(name) for name in data.columns]
        _check_names(names)
        return {name: _pandas(name, data.iloc[:, at]) for at, name in enumerate(names)}
    table = _arrow(data)
    _check_names(table.column_names)
    return {name: _of_arrow(table.column(at)) for at, name in enumerate(table.column_names)}


def to_table(data: Any, what: str = "data") -> Table:
    """A table of the engine."""
    if isinstance(data, Table):
        return data
    if not is_frame(data):
        raise TypeError(
            f"{what} is {type(data).__name__}, but must have columns with names; "
            "give a frame of pandas, polars or Arrow, or a dict of columns"
        )
    columns = columns_of(data)
    return Table(list(columns), list(columns.values()))


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(
            f"the column {name!r} has a name that is no text; rename it to {str(name)!r}"
        )
    return name


def _check_names(names: list[str]) -> None:
    twice = (
        sorted({name for name in names if names.count(name) > 1})
        if len(set(names)) < len(names)
        else []
    )
    if twice:
        raise ValueError(
            f"the names {', '.join(twice)} occur more than once; give every column its own"
        )


def _text(cells: Any) -> list[str | None]:
    """Cells as text; what is missing is None. Truth values are written as files have them."""
    return [None if _is_missing(cell) else _word(cell) for cell in cells]


def _word(cell: Any) -> str:
    if isinstance(cell, (bool, np.bool_)):
        return "true" if cell else "false"
    return str(cell)


def _is_missing(cell: Any) -> bool:
    # NaN, NaT and pandas' NA are not equal to themselves, or say nothing about it.
    if cell is None:
        return True
    same = cell == cell
    return not (isinstance(same, (bool, np.bool_)) and same)


def _cells(name: Any, cells: Any) -> Any:
    """A column of a dict: anything that NumPy makes an array of."""
    if hasattr(cells, "__dlpack__") and not isinstance(cells, np.ndarray):
        cells = from_dlpack(cells)
    array = cells if isinstance(cells, np.ndarray) else np.asarray(cells)
    if array.ndim != 1:
        raise ValueError(f"column {name!r} has {array.ndim} axes; give columns with one")
    if array.dtype.kind in "biuf":
        return np.ascontiguousarray(array, dtype=np.float64)
    if array.dtype.kind in "OUS":
        return _objects(array)
    raise TypeError(f"column {name!r} is of type {array.dtype}; convert it to numbers or to text")


def _objects(array: np.ndarray) -> Any:
    """Objects: numbers where all of them are, else text."""
    cells = array.tolist()
    there = [cell for cell in cells if not _is_missing(cell)]
    if there and all(isinstance(cell, (bool, int, float, np.number, np.bool_)) for cell in there):
        return np.array([np.nan if _is_missing(cell) else float(cell) for cell in cells])
    return [
        None if _is_missing(c) else c.decode() if isinstance(c, bytes) else _word(c) for c in cells
    ]


def _pandas(name: str, series: Any) -> Any:
    kind = series.dtype
    if str(kind) == "category":
        # Categories that are numbers are categories all the same.
        return _text(series.tolist())
    if getattr(kind, "kind", "O") in "biuf":
        return np.ascontiguousarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    if getattr(kind, "kind", "O") in "Mm":
        raise TypeError(f"column {name!r} is of type {kind}; convert it to numbers or to text")
    return _objects(series.to_numpy(dtype=object))


def _polars(series: Any) -> Any:
    kind = series.dtype
    if kind.is_numeric() or str(kind) == "Boolean":
        import polars

        cells = series.cast(polars.Float64).fill_null(float("nan"))
        return np.ascontiguousarray(cells.to_numpy(), dtype=np.float64)
    if str(kind) == "Null":
        return np.full(len(series), np.nan)
    if str(kind) in ("String", "Utf8", "Object") or str(kind).startswith(("Categorical", "Enum")):
        return _text(series.to_list())
    raise TypeError(f"column {series.name!r} is of type {kind}; convert it to numbers or to text")


def _arrow(data: Any) -> Any:
    """Whatever speaks Arrow's C interface, as a table of pyarrow."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            f"{type(data).__name__} is read through Arrow, and pyarrow is not installed; "
            "pip install pyarrow, or give a frame of pandas or polars"
        ) from error
    return data if isinstance(data, pyarrow.Table) else pyarrow.table(data)


def _of_arrow(column: Any) -> Any:
    import pyarrow

    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        return _text(column.to_pylist())
    if (
        pyarrow.types.is_boolean(kind)
        or pyarrow.types.is_integer(kind)
        or pyarrow.types.is_floating(kind)
    ):
        cells = column.cast(pyarrow.float64()).to_numpy(zero_copy_only=False)
        return np.ascontiguousarray(cells, dtype=np.float64)
    if pyarrow.types.is_null(kind):
        return np.full(len(column), np.nan)
    if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
        return _text(column.to_pylist())
    raise TypeError(f"a column of Arrow is of type {kind}; convert it to numbers or to text")


def from_dlpack(data: Any) -> np.ndarray:
    """An array of a tensor of another library, without a copy where it is on the CPU."""
    if hasattr(data, "detach"):
        # PyTorch hands over no tensor that has a gradient.
        data = data.detach().cpu()
    return np.from_dlpack(data)
