"""Runs: trained, loaded, looked at, taken elsewhere."""

import html
import json
import tempfile
import tomllib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import _thinfer
from ._settings import to_settings
from ._tables import from_dlpack, to_table
from ._told import Callback, Told

if TYPE_CHECKING:
    from ._torch import TorchSample


def train(
    config: Mapping[str, Any] | str | PathLike[str],
    *,
    data: Any = None,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    force: bool = False,
    callback: Callback | None = None,
    progress: bool = False,
    threads: int = 0,
    device: str | None = None,
) -> "Run":
    """Train what a configuration asks for.

    Parameters
    ----------
    config : dict or path
        Settings by key, with dots (``{"train.epochs": 50}``) or nested, or a TOML file.
    data : frame or dict of columns, optional
        The table, where it is in memory. The configuration then names ``data.target`` and no file.
    out : path, optional
        The folder of the run. Without one the run is in memory and cannot be gone on with.
    resume, force : bool
        Go on with the run in the folder, or replace it.
    callback : callable, optional
        Called with a dict after every recorded epoch of a chain. An exception ends the run after a
        checkpoint and is passed on.
    progress : bool
        Whether a line on stderr shows how far the run is.
    threads : int
        Threads of the CPU; 0 is one a core. Results do not depend on it.
    device : str, optional
        ``"cpu"``, ``"cuda"`` or ``"cuda:N"``; by default a GPU where one works.

    Returns
    -------
    Run
        The finished run.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, once a checkpoint is written. ``resume=True`` goes on to the same bits.
    ValueError
        Where a key or the table cannot be used; the message says what to do.
    """
    if resume and force:
        raise ValueError(
            "`resume` and `force` are both given; one goes on with a run, the other replaces it"
        )
    if resume and out is None:
        raise ValueError("`resume` goes on with the run in a folder; give it as `out`")
    settings: list[str] = []
    file = None
    if isinstance(config, Mapping):
        settings = to_settings(config)
    elif isinstance(config, (str, PathLike)):
        file = config
    else:
        raise TypeError(
            f"config is {type(config).__name__}, but must be a dict of keys or the path of a "
            "TOML file"
        )
    table = None
    if data is not None:
        table = to_table(data)
        settings += to_settings({"data.kind": "table", "data.path": _thinfer.IN_MEMORY})
    mode = "resume" if resume else "force" if force else "new"
    with Told("training", callback, progress) as told:
        run = _thinfer.train(file, settings, table, out, mode, threads, device, told)
    return Run(run)


def load(path: str | PathLike[str], *, data: Any = None, device: str | None = None) -> "Run":
    """Open the run in a folder.

    Parameters
    ----------
    path : path
        The folder that ``train`` or the program wrote.
    data : frame or dict of columns, optional
        The table that the run was trained on, where it is in no file. Other rows are refused.
    device : str, optional
        Where images are predicted; by default a GPU where one works.

    Returns
    -------
    Run
        The run. Its data is loaded when something needs it.
    """
    table = None if data is None else to_table(data)
    with Told("loading") as told:
        return Run(_thinfer.load(path, table, device, told))


class Run:
    """A run and the samples that it keeps.

    ``train`` and ``load`` make them.
    """

    def __init__(self, run: _thinfer.Run) -> None:
        self._run = run
        self._evaluation: dict[str, Any] | None = None

    # What it is.

    @property
    def folder(self) -> Path | None:
        """The folder of the run; None where it is in memory."""
        return self._run.folder

    @property
    def config(self) -> dict[str, Any]:
        """The configuration with all its defaults, nested like a file."""
        return tomllib.loads(self._run.config())

    @property
    def notes(self) -> list[str]:
        """What to know about the data."""
        return self._info["notes"]

    @property
    def seconds(self) -> float:
        """How long it trained; 0 where it was loaded."""
        return self._run.seconds

    @property
    def classes(self) -> list[str]:
        """The names of the classes; none of a regression."""
        return self._run.classes

    @property
    def variables(self) -> list[str]:
        """The columns of the table; none of images."""
        return self._run.variables

    @property
    def _info(self) -> dict[str, Any]:
        return json.loads(self._run.info())

    def __len__(self) -> int:
        return len(self._run)

    # Its samples.

    @property
    def samples(self) -> dict[str, NDArray[np.float32]]:
        """Every parameter by name, ``(samples, …)``, at full size with zeros where it is pruned.

        Linear layers are (outputs, inputs) as in PyTorch. Units are those of standardised columns
        and targets. All arrays are parts of one.
        """
        named = {}
        for all_of_them, places in (self._run.weights(), self._run.statistics()):
            for name, shape, first in places:
                part = all_of_them[:, first : first + int(np.prod(shape))]
                named[name] = part.reshape(len(part), *shape)
        return named

    @property
    def chain(self) -> NDArray[np.int64]:
        """The chain of each sample."""
        return np.asarray(self._run.origins()[0], dtype=np.int64)

    @property
    def epoch(self) -> NDArray[np.int64]:
        """The epoch, from 0, after which each sample was taken."""
        return np.asarray(self._run.origins()[1], dtype=np.int64)

    # What it says of other rows.

    def predict(self, X: Any) -> dict[str, Any]:
        """Predict the rows of a table.

        Parameters
        ----------
        X : frame or dict of columns
            It needs the columns that the samples read; others are passed over.

        Returns
        -------
        dict
            ``mean``, ``sd``, ``lower90`` and ``upper90``, or ``p_CLASS`` for every class and
            ``predicted``. A row with missing values has NaN, or no class.
        """
        return self._predicted(X)[0]

    def score(self, X: Any) -> dict[str, Any]:
        """Score predictions of a table that has the target.

        Parameters
        ----------
        X : frame or dict of columns
            The columns that the samples read, and the target under its name.

        Returns
        -------
        dict
            ``mse``, ``nll``, ``coverage90`` and so on, in the units of the target; None where one
            does not apply.
        """
        _, notes, scores = self._predicted(X)
        if scores is None:
            reasons = "; ".join(notes) or "X has no target column"
            raise ValueError(
                f"there is nothing to score: {reasons}; give the target under its name"
            )
        return json.loads(scores)

    def _predicted(self, X: Any) -> tuple[dict[str, Any], list[str], str | None]:
        found = self._run.predict(to_table(X, "X"))
        told = Told("predicting")
        for note in found[1]:
            told.notice(note)
        return found

    def predict_images(self, images: Any) -> dict[str, Any]:
        """Predict images.

        Parameters
        ----------
        images : array or tensor
            Bytes (N, height, width, channels), or numbers from 0 to 1 (N, channels, height, width)
            as PyTorch has them. They are rounded to bytes, which the network was trained on.

        Returns
        -------
        dict
            ``p_CLASS`` for every class, and ``predicted``.
        """
        array = images if isinstance(images, np.ndarray) else from_dlpack(images)
        if array.ndim != 4:
            raise ValueError(
                f"images have {array.ndim} axes, but need 4; give (N, H, W, C) bytes or "
                "(N, C, H, W) numbers"
            )
        if array.dtype.kind == "f":
            if not (array.size and 0 <= array.min() and array.max() <= 1):
                raise ValueError(
                    "images are numbers that are not all from 0 to 1; divide bytes by 255, and do "
                    "not normalise them"
                )
            array = np.round(array.transpose(0, 2, 3, 1) * 255).astype(np.uint8)
        elif array.dtype != np.uint8:
            raise TypeError(f"images are of type {array.dtype}; give uint8, or floats from 0 to 1")
        p = self._run.predict_images(np.ascontiguousarray(array))
        named: dict[str, Any] = {f"p_{name}": p[:, at] for at, name in enumerate(self.classes)}
        named["predicted"] = [self.classes[at] for at in p.argmax(1)]
        return named

    def sample_posterior(self, X: Any) -> NDArray[np.float64]:
        """What every sample says of every row.

        Parameters
        ----------
        X : frame or dict of columns
            Complete rows with every column of the training table.

        Returns
        -------
        array
            Means (samples, rows) in the units of the target, without the noise; of classes their
            probabilities (samples, rows, classes).
        """
        members = self._run.predictive(to_table(X, "X")).members()
        return members if self.classes else members[:, :, 0]

    # What it is worth.

    def evaluate(self) -> dict[str, Any]:
        """What ``thinfer eval --json`` prints: scores, selected variables, size, verdict."""
        if self._evaluation is None:
            self._evaluation = json.loads(self._run.evaluate())
        return self._evaluation

    def diagnostics(self) -> dict[str, Any]:
        """What ``thinfer diagnose --json`` prints: agreement, traces, drift, calibration."""
        return json.loads(self._run.diagnose())

    def report(self, path: str | PathLike[str] | None = None, *, force: bool = False) -> Path:
        """Write the report, one HTML file.

        Parameters
        ----------
        path : path, optional
            Where; by default ``report.html`` in the folder of the run, where ``thinfer report``
            writes it too.
        force : bool
            Whether a file at ``path`` is replaced.

        Returns
        -------
        Path
            The file.
        """
        if path is None:
            return self._run.finish()
        path = Path(path)
        if not force and path.exists():
            raise FileExistsError(f"{path} is there already; replace it with force=True")
        page = self._run.report()
        with open(path, "w" if force else "x", encoding="utf-8") as file:
            file.write(page)
        return path

    # Where else it can go.

    def to_onnx(
        self, path: str | PathLike[str], sample: int | str = "all", *, force: bool = False
    ) -> Path:
        """Write an ONNX graph that answers as the run does, which is checked.

        Parameters
        ----------
        path : path
            The file.
        sample : int or str
            The number of a sample, ``"last"``, or ``"all"`` for their average.
        force : bool
            Whether a file at ``path`` is replaced.

        Returns
        -------
        Path
            The file.
        """
        if not force and Path(path).exists():
            raise FileExistsError(f"{path} is there already; replace it with force=True")
        files, _, notices = self._run.export(path, "onnx", str(sample), force)
        told = Told("exporting")
        for notice in notices:
            told.notice(notice)
        return files[0]

    def to_torch(self, sample: int | str = "last") -> "TorchSample":
        """The network of one sample in PyTorch, at the size that pruning left.

        Parameters
        ----------
        sample : int or str
            The number of a sample, or ``"last"``.

        Returns
        -------
        torch.nn.Module
            It reads what ``module.encode(X)`` makes of a table, and gives standardised means or
            logits, which ``module.decode`` turns into the units of the target or probabilities.
        """
        from ._torch import read_sample

        if sample == "all":
            raise ValueError(
                '`sample` is "all", but a module is one sample; give its number, or "last"'
            )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sample.safetensors"
            files, _, _ = self._run.export(path, "safetensors", str(sample), False)
            return read_sample(files[0])

    def to_arviz(self) -> Any:
        """All chains after the burn-in as ArviZ's data, with log-likelihood and predictions."""
        try:
            import arviz
            import xarray
        except ImportError as error:
            raise ImportError(
                f"{error.name} is not installed; pip install thinfer[arviz]"
            ) from error
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "posterior.zarr"
            for notice in self._run.export_chains(path):
                Told("exporting").notice(notice)
            tree = xarray.open_datatree(path, engine="zarr").load()
            tree.close()
        # ArviZ 1 takes the tree itself.
        return arviz.InferenceData.from_datatree(tree) if hasattr(arviz, "InferenceData") else tree

    def to_bytes(self) -> bytes:
        """The posterior as bytes, without data and folder."""
        return self._run.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Run":
        """The run of such bytes."""
        return cls(_thinfer.Run.from_bytes(data))

    def __reduce__(self) -> tuple[Any, ...]:
        return Run.from_bytes, (self.to_bytes(),)

    # How it is shown.

    def _facts(self) -> list[tuple[str, str]]:
        info = self._info
        data = info["config"]["data"]
        facts = [
            ("data", data["path"] if data["kind"] == "table" else data["kind"]),
            ("rows", "{} to learn from, {} to choose with, {} to test on".format(*info["rows"])),
            ("method", info["config"]["method"]["kind"]),
            ("samples", f"{len(self)} of {self._run.chains} chains"),
        ]
        if self.folder is not None:
            facts.append(("folder", str(self.folder)))
        return facts

    def __repr__(self) -> str:
        facts = self._facts()
        return "<thinfer.Run: " + "; ".join(f"{name} {value}" for name, value in facts) + ">"

    def _repr_html_(self) -> str:
        facts = self._facts()
        try:
            scores = self.evaluate()["posterior"]
        except (OSError, ValueError, RuntimeError):
            # Its data is not at hand.
            scores = {}
        facts += [
            (name, f"{value:.4g}") for name, value in scores.items() if isinstance(value, float)
        ]
        verdict = (self._evaluation or {}).get("verdict") or {}
        if "text" in verdict:
            facts.append(("verdict", verdict["text"]))
        rows = (
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in facts
        )
        return f"<table><caption>thinfer run</caption>{''.join(rows)}</table>"
