#!/usr/bin/env bash
# One training step of image networks on a GPU, in thinfer (data, forward, backward and sampler) and in PyTorch
# (forward, backward and fused SGD; compile + CUDA graph), on the same machine in the same call.
#
#   benches/gpu.sh [FOLDER]        # JSON goes there; default: a new temporary folder
#
# THINFER names the program (default: target/release/thinfer), PYTHON the interpreter that has PyTorch
# (default: python3). Installs nothing and builds nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

thinfer="${THINFER:-target/release/thinfer}"
python="${PYTHON:-python3}"
out="${1:-$(mktemp -d)}"
mkdir -p "$out"
# thinfer's name, PyTorch's name, batch
cases="resnet18-cifar:resnet18:128 resnet18-cifar:resnet18:512 wrn-28-10:wrn-28-10:128 resnet50:resnet50:256"

for case in $cases; do
    IFS=: read -r model _ batch <<<"$case"
    "$thinfer" bench --device cuda:0 --model "$model" --batch "$batch" --precision bf16 --deterministic \
        --quiet --json >"$out/thinfer-$model-$batch.json"
done
for case in $cases; do
    IFS=: read -r _ model batch <<<"$case"
    "$python" benches/pytorch/resnet.py --cases "$model:$batch" >"$out/pytorch-$model-$batch.json" 2>"$out/pytorch.log" ||
        echo "gpu.sh: PyTorch failed on $model with batch $batch; see $out/pytorch.log" >&2
done

"$python" - "$out" $cases <<'PY'
import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
print(f"{'model':16}{'batch':>6}{'thinfer ms':>12}{'data':>8}{'forward':>9}{'backward':>10}{'update':>8}"
      f"{'of copy':>9}{'start s':>9}{'PyTorch ms':>12}{'ratio':>7}")
for case in sys.argv[2:]:
    mine, theirs, batch = case.split(":")
    ours = json.loads((folder / f"thinfer-{mine}-{batch}.json").read_text())
    ms = ours["milliseconds"]
    try:
        torch = json.loads((folder / f"pytorch-{theirs}-{batch}.json").read_text())["cases"][0]["median_ms"]
    except (ValueError, OSError):
        torch = float("nan")
    print(f"{mine:16}{batch:>6}{ms['step']:12.3f}{ms['data']:8.4f}{ms['forward']:9.3f}{ms['backward']:10.3f}"
          f"{ms['update']:8.4f}{ours['limits']['update_of_copy']:9.2f}{ours['startup_seconds']:9.2f}"
          f"{torch:12.3f}{torch / ms['step']:7.2f}")
PY
