#!/usr/bin/env bash
# Runs every method and kind of data for a moment and prints a digest of all that came out, so that two programs can be
# compared to the bit:
#
#   tests/golden/run.sh PROGRAM FOLDER > digests.txt
#
# Times, versions and paths are left out. Bits depend on the vector unit of the CPU: compare on one machine.
set -euo pipefail
program=$(realpath "$1")
mkdir -p "$2"
cd "$2"

# What must not move in a file: the numbers of JSON without seconds, samples without their notes, everything else whole.
digest() {
  python3 - "$@" <<'PY'
import hashlib, json, re, sys

def plain(value):
    if isinstance(value, dict):
        dropped = ("seconds", "version", "path", "device", "when", "checksum", "command", "crc", "milliseconds", "ratio", "masked", "shrunk", "times")
        return {k: plain(v) for k, v in sorted(value.items()) if not any(word in k for word in dropped)}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value

for name in sys.argv[1:]:
    data = open(name, "rb").read()
    if name.endswith(".json"):
        data = json.dumps(plain(json.loads(data))).encode()
    elif name.endswith(".html"):
        text = re.sub(r"<b>Seconds an epoch.*?<h2", "<h2", data.decode(), flags=re.S)
        text = re.sub(r"<tr><th[^>]*>Milliseconds.*?</tr>", "", text, flags=re.S)
        text = re.sub(r"[0-9.]+ (s|ms|min|seconds)\b", "", text)
        data = re.sub(r"thinfer [0-9.]+", "", text).encode()
    print(hashlib.md5(data).hexdigest()[:12], name)
PY
}

run() { # NAME, then arguments of train
  local name=$1
  shift
  if ! "$program" train "$@" --device cpu --out "$name" -q >"$name.txt" 2>"$name.err"; then
    echo "failed        $name: $(tail -n 1 "$name.err")"
    return
  fi
  "$program" eval "$name" --device cpu --json >"$name.eval.json" 2>/dev/null
  "$program" report "$name" --device cpu --out "$name.html" --force -q >/dev/null 2>&1
  "$program" export "$name" --out "$name.safetensors" --force -q >/dev/null 2>&1 || echo "no export     $name"
  "$program" export "$name" --format onnx --sample last --out "$name.onnx" --force -q >/dev/null 2>&1 ||
    echo "no onnx       $name"
  digest "$name"/history.csv "$name"/config.toml "$name"/evaluation.json "$name"/chain-*/snapshot-* "$name.eval.json" \
    "$name.html" $(ls "$name.safetensors" "$name.onnx" 2>/dev/null)
}

# A table with numbers, categories and missing values, of three kinds of target.
python3 - <<'PY'
import random
r = random.Random(7)
rows = ["a,b,c,kind,price,class,count"]
for i in range(300):
    a, b, c = (r.gauss(0, 1) for _ in range(3))
    kind = r.choice(["oak", "elm", "ash"])
    y = 2 * a - b * b + (1 if kind == "oak" else 0) + 0.3 * r.gauss(0, 1)
    gap = "" if i % 50 == 7 else f"{b:.6f}"
    rows.append(f"{a:.6f},{gap},{c:.6f},{kind},{y:.6f},{'yes' if y > 0 else 'no'},{['low','mid','high'][min(2, max(0, int(y + 2)))]}")
open("table.csv", "w").write("\n".join(rows) + "\n")
PY
cat >table.toml <<'T'
[data]
kind = "table"
path = "table.csv"
target = "price"
[train]
epochs = 24
batch = 32
[prune]
warm_up_epochs = 4
[schedule.step_size]
value = 0.05
shape = "cyclical"
cycles = 3
T
for example in example1 example2 example3 bai friedman; do
  printf '[data]\nkind = "%s"\ncolumns = 30\ntrain_rows = 600\nvalidation_rows = 100\ntest_rows = 100\n[train]\nepochs = 30\nbatch = 100\n[prune]\nwarm_up_epochs = 5\n[schedule.step_size]\nshape = "cyclical"\ncycles = 3\n' "$example" >"$example.toml"
done
cat >shapes.toml <<'T'
[data]
kind = "shapes"
train_rows = 320
test_rows = 100
[model]
name = "lenet"
[method]
beta1 = 0.5
[prune]
warm_up_epochs = 1
[schedule.step_size]
value = 0.05
shape = "cyclical"
cycles = 2
[train]
epochs = 6
batch = 32
T

for method in em-mcmc sghmc cv-adam sgd csgld csghmc dpf-lin sm dsr rank1; do
  sparse=()
  case $method in
    dpf-lin | sm | dsr) sparse=(--set prune.target=0.5) ;;
  esac
  for seed in 1 2; do
    [ "$method" = rank1 ] || run "table-$method-$seed" table.toml --set "method.kind=$method" --set seed=$seed "${sparse[@]}"
    run "shapes-$method-$seed" shapes.toml --set "method.kind=$method" --set seed=$seed "${sparse[@]}"
  done
done
for example in example1 example2 example3 bai friedman; do
  run "$example" "$example.toml" --set method.beta1=0.5
  run "$example-sghmc" "$example.toml" --set method.kind=sghmc --set chains=2
done
for preset in paper reference-code; do
  run "table-$preset" table.toml --set "preset=$preset"
  run "shapes-$preset" shapes.toml --set "preset=$preset"
  run "table-$preset-cv-adam" table.toml --set "preset=$preset" --set method.kind=cv-adam
done
run table-class table.toml --set data.target=class --set model.activation=tanh
run table-three table.toml --set data.target=count --set chains=2 --set model.noise=learned
run table-learned table.toml --set model.noise=learned --set prune.regrow=true
run table-linear table.toml --set 'model.hidden=[]'
run shapes-rank1-cauchy shapes.toml --set method.kind=rank1 --set method.posterior=cauchy
# Shrinking while it trains, in both forms of pruning, and frozen weights.
for shrink in always where-it-pays never; do
  run "shrink-$shrink" shapes.toml --set prune.target=0.7 --set prune.rule=range --set prune.regrow=false \
    --set "prune.shrink=$shrink" --set train.epochs=10 --set prune.freeze_after_cycles=1
  run "shrink-table-$shrink" example1.toml --set prune.target=0.6 --set prune.regrow=false --set "prune.shrink=$shrink"
done
run frozen shapes.toml --set schedule.step_size.cycles=3 --set train.freeze_below=0.5 --set prune.freeze_after_cycles=1 --set prune.regrow=false
for model in convnet resnet18-cifar wrn-10-1; do
  run "image-$model" shapes.toml --set "model.name=$model" --set train.epochs=2 --set data.train_rows=64 \
    --set data.test_rows=40 --set prune.regrow=false
done
# Stopped in the middle, and on to the end.
run whole example1.toml --set train.epochs=60 --set seed=3 --set train.checkpoint_steps=7
for moment in 0.15 0.3 0.6; do
  rm -rf resumed
  timeout -s KILL $moment "$program" train example1.toml --device cpu --set train.epochs=60 --set seed=3 --set train.checkpoint_steps=7 \
    --out resumed -q >/dev/null 2>&1 || true
  "$program" train example1.toml --device cpu --set train.epochs=60 --set seed=3 --set train.checkpoint_steps=7 --out resumed \
    --resume -q >/dev/null 2>&1 || true
  digest resumed/history.csv resumed/chain-0/snapshot-*
done | sort -u

"$program" select table.csv --target price --json >select.json 2>/dev/null
"$program" shrink shrink-never --out small.safetensors --force --json >small.json 2>/dev/null || true
"$program" subnetwork whole --json >subnetwork.json 2>/dev/null || true
"$program" compare table-sgd-1 table-sghmc-1 --out compare.html --force --json >compare.json 2>/dev/null || true
"$program" predict table-em-mcmc-1 table.csv --out predicted.csv --force -q >/dev/null 2>&1 || true
"$program" reproduce table4 --rows dfp,lasso --examples bai --repeats 2 --jobs 2 --out table4 --json >table4.json 2>/dev/null || true
"$program" methods >methods.txt
"$program" --help | sed "s,^Usage: [^ ]*,Usage: thinfer," >help.txt
digest select.json small.json small.safetensors subnetwork.json compare.json predicted.csv table4.json methods.txt help.txt
