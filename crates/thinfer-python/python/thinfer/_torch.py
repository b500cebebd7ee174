"""One sample of a run as a module of PyTorch, built from its export."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError as error:
    raise ImportError(f"{error.name} is not installed; pip install thinfer[torch]") from error

from ._tables import columns_of


def read_sample(path: Path) -> "TorchSample":
    """The one sample of a safetensors file and the description beside it."""
    about = json.loads(path.with_suffix(".architecture.json").read_text(encoding="utf-8"))
    module = TorchSample(about)
    module.load_state_dict(_tensors(path.read_bytes()), strict=True)
    return module.eval()


def _tensors(data: bytes) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    kinds = {"F32": np.float32, "I64": np.int64, "U8": np.uint8}
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        first, last = (8 + length + at for at in entry["data_offsets"])
        values = np.frombuffer(data[first:last], dtype=kinds[entry["dtype"]])
        tensors[name] = torch.from_numpy(values.reshape(entry["shape"]).copy())
    return tensors


class TorchSample(nn.Module):
    """The network of one sample at the size that pruning left.

    The names of its state are those of an export. ``forward`` reads what ``encode`` makes of a
    table, or normalised images, and gives standardised means or logits.
    """

    def __init__(self, about: dict[str, Any]) -> None:
        super().__init__()
        self.about = about
        network = about["networks"][about["samples"][0]["network"]]
        self.layers, shapes = network["layers"], {}
        columns = torch.tensor(network["inputs"], dtype=torch.long)
        self.register_buffer("columns", columns, persistent=False)
        for layer in self.layers:
            shapes[layer["name"]] = layer["shape"]
            module = _made(layer, [shapes[name] for name in layer["inputs"]])
            if module is not None:
                self._put(layer["name"], module)
        output = about["output"]
        if output["kind"] == "number" and output["noise_sd"] is None:
            self._put("noise", nn.Module())
            self.noise.log_sigma = nn.Parameter(torch.zeros(1))

    def _put(self, name: str, module: nn.Module) -> None:
        parent, *path = self, *name.split(".")
        for part in path[:-1]:
            if not hasattr(parent, part):
                parent.add_module(part, nn.Module())
            parent = getattr(parent, part)
        parent.add_module(path[-1], module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Standardised means (rows, 1), or logits (rows, classes)."""
        values = {"input": x[:, self.columns] if len(self.columns) else x}
        for layer in self.layers[1:]:
            read = [values[name] for name in layer["inputs"]]
            values[layer["name"]] = self._computed(layer, *read)
        return values[self.layers[-1]["name"]]

    def _computed(
        self, layer: dict[str, Any], x: torch.Tensor, other: torch.Tensor | None = None
    ) -> torch.Tensor:
        op = layer["op"]
        if op == "linear":
            return self.get_submodule(layer["name"])(x.flatten(1))
        if op == "conv2d":
            return self.get_submodule(layer["name"])(x if x.dim() == 4 else x[:, :, None, None])
        if op == "batch-norm":
            return self.get_submodule(layer["name"])(x)
        if op == "max-pool":
            return F.max_pool2d(x, layer["kernel"], layer["stride"], layer["padding"])
        if op == "average-pool":
            return F.avg_pool2d(x, layer["kernel"], layer["stride"], layer["padding"])
        if op == "global-average-pool":
            return x.mean((2, 3)) if x.dim() == 4 else x
        if op == "add":
            return x + other if x.dim() == other.dim() else x.flatten(1) + other.flatten(1)
        if op == "pick":
            return x.flatten(1)[:, layer["places"]]
        if op == "select":
            return x[:, layer["channels"]]
        if op == "spread":
            wide = x.new_zeros(x.shape[0], layer["shape"][0], *x.shape[2:])
            wide[:, layer["channels"]] = x
            return wide
        return {"relu": torch.relu, "tanh": torch.tanh}[op](x)

    def encode(self, X: Any) -> torch.Tensor:
        """What the network reads: of a table its standardised columns, of images (rows, channels,
        height, width) from 0 to 1 the normalised ones."""
        given = self.about["input"]
        if given["kind"] == "image":
            mean, sd = (torch.tensor(given[key])[:, None, None] for key in ("mean", "sd"))
            return (X - mean) / sd
        columns, encoded = columns_of(X), []
        for variable in given["variables"]:
            if variable["name"] not in columns:
                raise ValueError(
                    f"X has no column {variable['name']!r}, which the network reads; add it"
                )
            cells = columns[variable["name"]]
            if variable["kind"] == "number":
                encoded.append(
                    (np.asarray(cells, dtype=np.float64) - variable["mean"]) / variable["sd"]
                )
                continue
            for level, mean, sd in zip(
                variable["levels"], variable["means"], variable["sds"], strict=True
            ):
                there = np.array([_is_level(cell, level) for cell in cells], dtype=np.float64)
                encoded.append((there - mean) / sd)
        rows = len(next(iter(columns.values())))
        stacked = np.stack(encoded, 1) if encoded else np.zeros((rows, 0))
        return torch.from_numpy(stacked.astype(np.float32))

    def decode(self, raw: torch.Tensor) -> torch.Tensor:
        """Means (rows, 1) in the units of the target, or probabilities (rows, classes)."""
        output = self.about["output"]
        if output["kind"] == "classes":
            return raw.softmax(-1)
        if output["kind"] == "binary":
            p = raw.sigmoid()
            return torch.cat([1 - p, p], 1)
        # A target far from zero is not a 32-bit float.
        return output["mean"] + output["sd"] * raw.double()


def _is_level(cell: Any, level: str) -> bool:
    if isinstance(cell, str) or cell is None:
        return cell == level
    try:
        return float(level) == float(cell)
    except ValueError:
        return False


def _made(layer: dict[str, Any], read: list[list[int]]) -> nn.Module | None:
    """The module of a layer that has tensors."""
    outputs = layer["shape"][0]
    if layer["op"] == "linear":
        channels, height, width = read[0]
        return nn.Linear(channels * height * width, outputs, layer["bias"])
    if layer["op"] == "conv2d":
        size, stride, padding = layer["kernel"], layer["stride"], layer["padding"]
        return nn.Conv2d(read[0][0], outputs, size, stride, padding, bias=layer["bias"])
    if layer["op"] == "batch-norm":
        pixels = layer["shape"][1] * layer["shape"][2]
        return (nn.BatchNorm2d if pixels > 1 else _BatchNorm)(outputs, eps=layer["eps"])
    return None


class _BatchNorm(nn.BatchNorm1d):
    """Batch norm of single values, whether they come as vectors or as images of one pixel."""

    def _check_input_dim(self, x: torch.Tensor) -> None:
        pass
