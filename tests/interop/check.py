"""Weights of thinfer in PyTorch and the other way round: strict names and shapes, equal logits.

    cargo build --release -p thinfer-tools --bin interop
    python tests/interop/check.py target/release/interop

Needs PyTorch only (checked with 2.15). `--record` prints the golden case of `crates/thinfer/tests/interop.rs`.
"""

import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from networks import network

# name, image size, channels, classes. The large forms are checked at small images to save time.
CASES = [
    ("lenet", 28, 1, 10),
    ("resnet18-cifar", 32, 3, 10),
    ("resnet34-cifar", 32, 3, 100),
    ("resnet18", 64, 3, 1000),
    ("resnet50", 64, 3, 1000),
    ("wrn-16-2", 32, 3, 10),
]
# Largest difference of logits, relative to the largest logit: both sum in f32, in another order.
LIMIT = 2e-5
TYPES = {"F32": torch.float32, "I64": torch.int64}


def load(path):
    """A safetensors file as a state dict: header length, JSON header, bytes."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    body = bytearray(data[8 + length :])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            flat = torch.frombuffer(body[start:end], dtype=TYPES[entry["dtype"]]).clone()
            tensors[name] = flat.reshape(entry["shape"])
    return tensors


def save(path, tensors):
    header, body = {}, b""
    names = {kind: name for name, kind in TYPES.items()}
    for name, tensor in tensors.items():
        raw = tensor.contiguous().numpy().tobytes()
        offsets = [len(body), len(body) + len(raw)]
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
        body += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def logits(program, command, case, file, images, folder):
    name, size, channels, classes = case
    inputs, out = folder / "inputs", folder / "logits"
    inputs.write_bytes(images.permute(0, 2, 3, 1).contiguous().numpy().tobytes())
    subprocess.run([program, command, name, *map(str, (size, channels, classes)), file, inputs, out], check=True)
    return torch.frombuffer(bytearray(out.read_bytes()), dtype=torch.float32).reshape(len(images), classes)


def disturb(model):
    """Scales, shifts and statistics that are all different, so that an exchanged tensor shows."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.weight, 1.0, 0.2)
            torch.nn.init.normal_(module.bias, 0.0, 0.2)
            module.running_mean.normal_(0.0, 0.2)
            module.running_var.uniform_(0.5, 1.5)


def check(program, case, folder):
    name, size, channels, classes = case
    images = torch.randn(5, channels, size, size)
    worst = []
    for command in ("export", "logits"):
        model = network(name, size, channels, classes).eval()
        file = folder / "weights.safetensors"
        if command == "logits":
            disturb(model)
            save(file, model.state_dict())
        ours = logits(program, command, case, file, images, folder)
        if command == "export":
            model.load_state_dict(load(file), strict=True)
        with torch.no_grad():
            theirs = model(images)
        worst.append(((ours - theirs).abs().max() / theirs.abs().max()).item())
    print(f"{name:16} to PyTorch {worst[0]:.1e}  from PyTorch {worst[1]:.1e}")
    return max(worst) < LIMIT


def pattern(count, seed):
    """Numbers that any language can make: a small multiplicative generator, scaled to (-1, 1)."""
    values, state = [], seed
    for _ in range(count):
        state = state * 48271 % 2147483647
        values.append(state / 2147483647 * 2 - 1)
    return torch.tensor(values, dtype=torch.float64)


def record():
    """LeNet with weights and an image from `pattern`, tensor by tensor in the order of the file."""
    model = network("lenet", 28, 1, 10).double()
    with torch.no_grad():
        for seed, parameter in enumerate(model.parameters(), 1):
            fan_in = parameter[0].numel() if parameter.dim() > 1 else 1
            parameter.copy_(pattern(parameter.numel(), seed).reshape(parameter.shape) / max(fan_in, 4) ** 0.5)
        print(model(pattern(784, 99).reshape(1, 1, 28, 28)))


if __name__ == "__main__":
    torch.set_printoptions(precision=8)
    torch.manual_seed(1)
    if "--record" in sys.argv:
        record()
        sys.exit()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        results = [check(Path(sys.argv[1]).resolve(), case, Path(folder)) for case in CASES]
    sys.exit(0 if all(results) else "logits differ")
