"""Exports of thinfer in onnxruntime and in PyTorch: the answers must be those of thinfer itself.

    cargo build --release -p thinfer-tools --bin exports
    python tests/interop/check_export.py target/release/exports

Needs `torch`, `safetensors`, `onnx` and `onnxruntime` (checked with 2.15, 0.8, 1.23 and 1.31). Networks are
exported at full size, shrunk, and shrunk with folded norms; one sample and the average of three.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import onnx
import onnxruntime
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "python"))
from load_safetensors import load

IMAGES = [
    ("lenet", 28, 1, 10),
    ("convnet", 28, 1, 10),
    ("resnet18-cifar", 32, 3, 10),
    ("wrn-16-2", 32, 3, 10),
    ("resnet50", 64, 3, 20),
]
TABLES = ["regression", "binary", "classes"]
WAYS = ["dense", "small", "folded"]
# Largest difference relative to the largest answer: both sum in f32, in another order.
LIMIT = 2e-5


def apart(got, want):
    got, want = numpy.asarray(got, numpy.float64), numpy.asarray(want, numpy.float64)
    assert got.shape == want.shape, (got.shape, want.shape)
    return abs(got - want).max() / abs(want).max()


def session(path):
    onnx.checker.check_model(str(path), full_check=True)
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def compare(name, folder, fed, given, answers):
    """`fed` makes the inputs of a graph, `given` is what the PyTorch model takes, `answers` what both must give."""
    for way in WAYS:
        worst, sizes = [0.0, 0.0], []
        for samples in ("all", "last"):
            graph = session(folder / f"{samples}-{way}.onnx")
            outputs = graph.run(list(answers[samples]), fed(graph))
            model = load(folder / f"{samples}-{way}.safetensors")
            theirs = model(given)
            theirs = theirs if isinstance(theirs, tuple) else (theirs,)
            for want, onnx_says, torch_says in zip(answers[samples].values(), outputs, theirs, strict=True):
                worst[0] = max(worst[0], apart(onnx_says, want))
                worst[1] = max(worst[1], apart(torch_says, want))
            if "probabilities" in answers[samples]:
                # Probabilities hide differences where they are near 0 or 1; logits do not.
                logits = graph.run(["logits"], fed(graph))[0]
                each = model.each(given).numpy()
                worst[0] = max(worst[0], apart(logits, each.swapaxes(0, 1) if len(each) > 1 else each[0]))
            sizes.append(sum(p.numel() for p in model.samples[0].parameters()))
        print(f"{name:16} {way:7} {sizes[0]:10} parameters  onnxruntime {worst[0]:.1e}  PyTorch {worst[1]:.1e}")
        yield max(worst) < LIMIT


def images(program, case, folder):
    name, size, channels, classes = case
    subprocess.run([program, *map(str, case), folder], check=True)
    rows = numpy.fromfile(folder / "rows.f32", numpy.float32).reshape(-1, channels, size, size)
    answers = {s: {"probabilities": numpy.fromfile(folder / f"{s}.f32", numpy.float32).reshape(-1, classes)} for s in ("all", "last")}
    yield from compare(name, folder, lambda graph: {"image": rows}, torch.from_numpy(rows), answers)


def tables(program, kind, folder):
    subprocess.run([program, "table", kind, folder], check=True)
    rows = json.loads((folder / "rows.json").read_text())
    levels = ["blue", "green", "red"]

    def fed(graph):
        def column(name):
            cells = rows[name]
            if name == "colour":
                return numpy.array([[levels.index(cell)] for cell in cells], numpy.int64)
            return numpy.array(cells, numpy.float32)[:, None]

        return {entry.name: column(entry.name) for entry in graph.get_inputs()}

    answers = {}
    for samples in ("all", "last"):
        told = json.loads((folder / f"{samples}.json").read_text())
        column = lambda name: numpy.array(told[name])[:, None]
        if kind == "regression":
            answers[samples] = {"mean": column("mean"), "sd": column("sd")}
        else:
            shares = [column(name) for name in told if name.startswith("p_")]
            answers[samples] = {"probabilities": numpy.concatenate(shares, 1)}
    yield from compare(kind, folder, fed, rows, answers)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    program, good = Path(sys.argv[1]).resolve(), []
    for check, cases in ((images, IMAGES), (tables, TABLES)):
        for case in cases:
            with tempfile.TemporaryDirectory() as folder:
                good += check(program, case, Path(folder))
    sys.exit(0 if all(good) else "answers differ")
