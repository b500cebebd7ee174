#!/usr/bin/env bash
# One step of Example 1 in thinfer and in PyTorch, on the same machine in the same call.
#
#   benches/compare.sh [options of benches/pytorch/step.py]
#
# Installs nothing. PYTHON names the interpreter that has PyTorch (default: python3).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python="${PYTHON:-python3}"
# Both sides get the same number of threads, in all and one.
cores="${RAYON_NUM_THREADS:-$(env -u OMP_NUM_THREADS nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)}"

if ! command -v cargo >/dev/null; then
    echo "compare.sh: cargo was not found; install Rust (https://rustup.rs)" >&2
    exit 1
fi
have_torch=true
find='import importlib.util as u, sys; sys.exit(not (u.find_spec("torch") and u.find_spec("numpy")))'
if ! "$python" -c "$find" 2>/dev/null; then
    have_torch=false
    echo "compare.sh: \`$python\` does not have PyTorch and NumPy, so only thinfer is measured" >&2
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# A folder of its own, so that earlier measurements in target/criterion stay as they are.
CRITERION_HOME="$work" RAYON_NUM_THREADS="$cores" \
    cargo bench -p thinfer --bench step -- step/example1 >&2

# The median of a benchmark in milliseconds. Criterion stores nanoseconds, in one line of JSON.
median_ms() {
    sed -E 's/.*"median":\{"confidence_interval":\{[^}]*\},"point_estimate":([0-9.eE+-]+).*/\1/' \
        "$work/step_example1/$1/new/estimates.json" | awk '{ printf "%.4f", $1 / 1e6 }'
}
all="$(median_ms all-cores)"
one="$(median_ms one-thread)"

if ! $have_torch; then
    printf '%-40s%13s%13s\n' "median ms a step" "$cores threads" "1 thread" "thinfer" "$all" "$one"
    echo "compare.sh: no comparison: \`$python\` cannot import torch and numpy; install them" \
        "(pip install torch numpy) or name an interpreter that has them: PYTHON=... $0" >&2
    exit 1
fi

"$python" benches/pytorch/step.py --threads "$cores" "$@" >"$work/all.json"
"$python" benches/pytorch/step.py --threads 1 "$@" >"$work/one.json"

"$python" - "$all" "$one" "$work/all.json" "$work/one.json" <<'PY'
import json
import sys

thinfer = [float(value) for value in sys.argv[1:3]]
runs = [json.load(open(path, encoding="utf-8")) for path in sys.argv[3:5]]
labels = {
    "authors": "PyTorch, authors' style",
    "flat": "PyTorch, flat by hand",
    "compiled": "PyTorch, flat, torch.compile",
}


def line(label, cells):
    print(f"{label:40}" + "".join(f"{cell:>13}" for cell in cells))


def milliseconds(name):
    return [run["variants"].get(name, {}).get("median_ms") for run in runs]


def text(value, form):
    return "-" if value is None else format(value, form)


print(f"One step of Example 1 on {runs[0]['cpu']}; PyTorch {runs[0]['torch']}")
line("median ms a step", [f"{runs[0]['threads']} threads", "1 thread"])
line("thinfer", [text(value, ".4f") for value in thinfer])
for name, label in labels.items():
    line(label, [text(value, ".4f") for value in milliseconds(name)])
for name, label in labels.items():
    ratios = [ms and ms / mine for ms, mine in zip(milliseconds(name), thinfer)]
    line(f"{label} / thinfer", [text(ratio, ".2f") for ratio in ratios])
PY
