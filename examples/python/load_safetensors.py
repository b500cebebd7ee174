"""Builds the networks of a `thinfer export` in PyTorch, loads their weights strictly, and predicts.

    thinfer export runs/cifar10 --out model.safetensors
    python examples/python/load_safetensors.py model.safetensors

Needs `torch` and `safetensors`. `load` and `Posterior` are meant to be copied into your own program: nothing
but the file and the description beside it is read, whatever was cut out of the network.
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn


class Thin(nn.Module):
    """One network, built layer by layer from its description. State dict names are those of the file."""

    def __init__(self, network, output):
        super().__init__()
        self.layers, shapes = network["layers"], {}
        self.register_buffer("columns", torch.tensor(network["inputs"], dtype=torch.long), persistent=False)
        for layer in self.layers:
            shapes[layer["name"]] = layer["shape"]
            module = self.made(layer, [shapes[name] for name in layer["inputs"]])
            if module is not None:
                self.put(layer["name"], module)
        if output["kind"] == "number" and output["noise_sd"] is None:
            self.put("noise", nn.Module())
            self.noise.log_sigma = nn.Parameter(torch.zeros(1))

    @staticmethod
    def made(layer, read):
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
            return (nn.BatchNorm2d if pixels > 1 else BatchNorm)(outputs, eps=layer["eps"])
        return None

    def put(self, name, module):
        """Registers a module under a name with dots, such as `layer1.0.conv1`."""
        parent, *path = self, *name.split(".")
        for part in path[:-1]:
            if not hasattr(parent, part):
                parent.add_module(part, nn.Module())
            parent = getattr(parent, part)
        parent.add_module(path[-1], module)

    def forward(self, x):
        values = {"input": x[:, self.columns] if len(self.columns) else x}
        for layer in self.layers[1:]:
            read = [values[name] for name in layer["inputs"]]
            values[layer["name"]] = self.computed(layer, *read)
        return values[self.layers[-1]["name"]]

    def computed(self, layer, x, other=None):
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


class BatchNorm(nn.BatchNorm1d):
    """Batch norm of single values, whether they come as vectors or as images of one pixel."""

    def _check_input_dim(self, x):
        pass


def number(cell):
    """A cell of a column of numbers: truth values, True or the word, are 1 and 0."""
    return {"true": 1.0, "false": 0.0}.get(str(cell).lower(), cell)


def text(cell):
    """A cell of a column of levels, whose truth values are the words in lower case."""
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


class Posterior(nn.Module):
    """All samples of a file; its answers are their average."""

    def __init__(self, about):
        super().__init__()
        self.about = about
        output = about["output"]
        self.samples = nn.ModuleList(Thin(about["networks"][s["network"]], output) for s in about["samples"])

    def inputs(self, rows):
        """What the networks read: images (rows, channels, height, width) from 0 to 1, or the columns of a table by name."""
        given = self.about["input"]
        if given["kind"] == "image":
            mean, sd = (torch.tensor(given[key])[:, None, None] for key in ("mean", "sd"))
            return (rows - mean) / sd
        columns = []
        for variable in given["variables"]:
            cells = rows[variable["name"]]
            if variable["kind"] == "number":
                numbers = torch.tensor([number(cell) for cell in cells], dtype=torch.float64)
                columns.append((numbers - variable["mean"]) / variable["sd"])
                continue
            for level, mean, sd in zip(variable["levels"], variable["means"], variable["sds"]):
                there = torch.tensor([text(cell) == level for cell in cells], dtype=torch.float64)
                columns.append((there - mean) / sd)
        return torch.stack(columns, 1).float()

    @torch.no_grad()
    def each(self, rows):
        """What every sample gives, (samples, rows, outputs): logits, or standardised means."""
        x = self.inputs(rows)
        return torch.stack([sample(x) for sample in self.samples])

    @torch.no_grad()
    def forward(self, rows):
        """Probabilities (rows, classes), or mean and standard deviation (rows, 1) in the target's units."""
        each, output = self.each(rows), self.about["output"]
        if output["kind"] == "classes":
            return each.softmax(-1).mean(0)
        if output["kind"] == "binary":
            p = each.sigmoid().mean(0)
            return torch.cat([1 - p, p], 1)
        known = output["noise_sd"]
        noise = [known if known is not None else s.noise.log_sigma.exp().item() for s in self.samples]
        each = each.double()  # A target far from zero is not a 32-bit float.
        variance = each.var(0, unbiased=False) + sum(sd * sd for sd in noise) / len(noise)
        return output["mean"] + output["sd"] * each.mean(0), output["sd"] * variance.sqrt()


def load(path):
    """The posterior in a safetensors file and the description beside it."""
    path = Path(path)
    about = json.loads(path.with_suffix(".architecture.json").read_text())
    tensors, posterior = load_file(path), Posterior(about)
    for network, sample in zip(posterior.samples, about["samples"]):
        prefix = sample["prefix"]
        own = {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        # Files of `--dense` have masks as well; the pruned weights are zero already.
        network.load_state_dict({n: t for n, t in own.items() if not n.startswith("mask/")}, strict=True)
    return posterior.eval()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    posterior = load(sys.argv[1])
    given, output = posterior.about["input"], posterior.about["output"]
    parameters = [sum(p.numel() for p in s.parameters()) for s in posterior.samples]
    print(f"{len(parameters)} samples of {parameters[0]} parameters")
    if given["kind"] == "image":
        answer = posterior(torch.full((1, *given["shape"]), 0.5))
        print("a grey image:", dict(zip(output["classes"], answer[0].tolist())))
    else:
        middle = {v["name"]: [v["mean"] if v["kind"] == "number" else v["levels"][0]] for v in given["variables"]}
        print("a row in the middle:", posterior(middle))
