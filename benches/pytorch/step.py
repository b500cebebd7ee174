"""One step of Algorithm 3 on Example 1 in PyTorch on the CPU, three ways.

    python benches/pytorch/step.py [--threads N] [--steps N] [--warmup N]

Data: 10,000 rows of 1,000 inputs, every pair with correlation 1/2. Network: 1000-5-3-1, ReLU, biases,
5,027 weights. A step takes 1,024 rows of a random permutation, which is drawn afresh in each epoch of
ten steps (the last has 784 rows), and does, with g the mean data gradient of MSE/2,

    rho <- rho + eta (1/(N tau) - alpha^2 wd tau - alpha^2/s eps g)    alpha = k dt^(3/2); old tau, eps
    tau <- sigmoid(rho)
    v   <- b1 v - dt^2 (g + wd w) + s eps                              s = k dt sqrt(2 (1 - b1) / tau)
    w   <- mask (w + tau v)

which is the work of `step/example1` in crates/thinfer/benches/step.rs. The variants:

    authors    modules, autograd and a Python loop over tensors with a state each
    flat       one buffer for all parameters, forward and backward by hand, nothing allocated in a step;
               in blocks of rows where that is faster, which a short trial before the warm-up decides
    compiled   flat under torch.compile; needs a C++ compiler

Before anything is timed, all variants do the same twelve steps with the same noise and must agree.
Prints one JSON object. Times are those of whole epochs divided by their ten steps.
"""

import argparse
import json
import math
import os
import platform
import shutil
import statistics
import sys
import time

import numpy as np
import torch
from torch import nn

ROWS, BATCH = 10_000, 1024
WIDTHS = (1000, 5, 3, 1)
STEPS_PER_EPOCH = math.ceil(ROWS / BATCH)

BETA1, ETA, K, STEP_SIZE = 0.1, 0.1, 1 / math.sqrt(ROWS), 0.01
SLAB_DECAY, SPIKE_DECAY = 2e-4, 0.1
# So long that the cosine hardly moves while we measure, as in the Rust benchmark.
CYCLE_STEPS = 10**10 / 6

# Each layer's weight (outputs, inputs), then its bias, in one flat buffer.
SHAPES = [shape for i, o in zip(WIDTHS, WIDTHS[1:]) for shape in ((o, i), (o,))]
SIZES = [math.prod(shape) for shape in SHAPES]
WEIGHTS = sum(SIZES)


def pieces(flat):
    """The tensors of the network as views into a flat buffer."""
    return [part.view(shape) for part, shape in zip(flat.split(SIZES), SHAPES)]


def simulate(seed):
    """Example 1 of the paper, the formula of Sun, Song & Liang's code."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((ROWS, WIDTHS[0]), dtype=np.float32)
    x += rng.standard_normal((ROWS, 1), dtype=np.float32)
    x *= np.float32(math.sqrt(0.5))
    x1, x2, x3, x4, x5 = x[:, :5].T
    y = np.tanh(2 * np.tanh(2 * x1 - x2))
    y += 2 * np.tanh(2 * np.tanh(x3 - 2 * x4) - np.tanh(2 * x5))
    y += rng.standard_normal(ROWS, dtype=np.float32)
    return torch.from_numpy(x), torch.from_numpy(y)


def start_weights(seed):
    """PyTorch's own initialisation: U(-1/sqrt(inputs), 1/sqrt(inputs)) for weights and biases."""
    generator = torch.Generator().manual_seed(seed)
    flat = torch.empty(WEIGHTS)
    for part, inputs in zip(pieces(flat), [i for i in WIDTHS[:-1] for _ in range(2)]):
        part.uniform_(-1 / math.sqrt(inputs), 1 / math.sqrt(inputs), generator=generator)
    return flat


def time_step(step):
    """dt at a step: the root of a cyclical cosine."""
    phase = (step % CYCLE_STEPS) / CYCLE_STEPS
    return math.sqrt(STEP_SIZE * 0.5 * (math.cos(math.pi * phase) + 1))


class Authors:
    """Written as the released optimizer is: per tensor, expression by expression."""

    k = K

    def __init__(self, x, y, start, decay, mask):
        self.x, self.y = x, y[:, None]
        layers = []
        for inputs, outputs in zip(WIDTHS, WIDTHS[1:]):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.net = nn.Sequential(*layers[:-1])
        self.loss = nn.MSELoss()
        self.loss_sum = torch.zeros(())
        self.state = []
        for p, w, wd, m in zip(self.net.parameters(), *map(pieces, (start, decay, mask))):
            p.data.copy_(w)
            state = {"v": torch.zeros_like(w), "rho": torch.zeros_like(w), "decay": wd, "mask": m}
            state |= {"tau": torch.full_like(w, 0.5), "eps": torch.zeros_like(w)}
            self.state.append((p, state))

    def results(self):
        parts = [(p.detach().flatten(), state["rho"].flatten()) for p, state in self.state]
        weights, rho = zip(*parts)
        return {"weights": torch.cat(weights), "rho": torch.cat(rho)}

    def step(self, rows, step, noise=None):
        self.net.zero_grad()
        loss = 0.5 * self.loss(self.net(self.x[rows]), self.y[rows])
        loss.backward()
        dt = time_step(step)
        k = self.k
        alpha = k * dt**1.5
        noise = [None] * len(self.state) if noise is None else pieces(noise)
        with torch.no_grad():
            self.loss_sum += loss
            for (p, state), given in zip(self.state, noise):
                g, v, rho, tau, wd = p.grad, state["v"], state["rho"], state["tau"], state["decay"]
                scale = k * dt * torch.sqrt(2 * (1 - BETA1) / tau)
                change = 1 / (ROWS * tau) - alpha**2 * wd * tau
                rho.add_(ETA * (change - alpha**2 / scale * state["eps"] * g))
                tau = state["tau"] = torch.sigmoid(rho)
                eps = state["eps"] = torch.randn_like(p) if given is None else given
                scale = k * dt * torch.sqrt(2 * (1 - BETA1) / tau)
                v.mul_(BETA1).sub_(dt**2 * (g + wd * p)).add_(scale * eps)
                p.add_(tau * v)
                p.mul_(state["mask"])


class Flat:
    """Everything in flat buffers that are made once; activations lie unit by row.

    The update keeps r = tau^(-1/2) and u = tau r eps = sqrt(tau) eps, since 1/tau = r^2 and
    alpha^2/s eps = k dt^2 / sqrt(2 (1 - b1)) u.
    """

    k = K

    def __init__(self, x, y, start, decay, mask, block=BATCH):
        self.x, self.y, self.block = x, y, block
        self.w, self.decay, self.mask = start.clone(), decay.clone(), mask.clone()
        new = torch.zeros_like
        self.v, self.rho, self.g, self.u, self.eps = (new(start) for _ in range(5))
        self.tau = torch.full_like(start, 0.5)
        self.r = self.tau.rsqrt()
        self.loss_sum = torch.zeros(())
        w1, b1, w2, b2, w3, b3 = pieces(self.w)
        self.layers = w1, b1[:, None], w2, b2[:, None], w3, b3
        self.w2t, self.w3t = w2.t(), w3.t()
        self.gradients = pieces(self.g)
        self.buffers = {}

    def results(self):
        return {"weights": self.w.clone(), "rho": self.rho.clone()}

    def buffers_for(self, rows):
        """Work space for a block of `rows` rows, with every view that a step needs."""
        if rows not in self.buffers:
            one, two, three = WIDTHS[1:]
            x = torch.empty(rows, WIDTHS[0])
            h1, h2, out, target = (torch.empty(n, rows) for n in (one, two, three, 1))
            self.buffers[rows] = (
                x, x.t(), h1, h1.t(), h2, h2.t(), out, out.view(rows), target.view(rows),
                torch.empty(one, rows), torch.empty(two, rows), torch.ones(rows),
            )
        return self.buffers[rows]

    def gradient(self, rows):
        w1, b1, w2, b2, w3, b3 = self.layers
        g_w1, g_b1, g_w2, g_b2, g_w3, g_b3 = self.gradients
        relu_backward = torch.ops.aten.threshold_backward.grad_input
        count = rows.shape[0]
        scale = 1 / count
        if self.block < count:
            self.g.zero_()
        for part in rows.split(self.block):
            beta = 1 if self.block < count else 0
            x, xt, h1, h1t, h2, h2t, out, e, y, d1, d2, ones = self.buffers_for(part.shape[0])
            torch.index_select(self.x, 0, part, out=x)
            torch.index_select(self.y, 0, part, out=y)
            torch.addmm(b1, w1, xt, out=h1).relu_()
            torch.addmm(b2, w2, h1, out=h2).relu_()
            torch.addmm(b3, w3, h2, out=out)
            e.sub_(y)
            self.loss_sum.add_(torch.dot(e, e), alpha=0.5 * scale)
            e.mul_(scale)
            torch.addmm(g_w3, out, h2t, beta=beta, out=g_w3)
            torch.addmv(g_b3, out, ones, beta=beta, out=g_b3)
            torch.mm(self.w3t, out, out=d2)
            relu_backward(d2, h2, 0, grad_input=d2)
            torch.addmm(g_w2, d2, h1t, beta=beta, out=g_w2)
            torch.addmv(g_b2, d2, ones, beta=beta, out=g_b2)
            torch.mm(self.w2t, d2, out=d1)
            relu_backward(d1, h1, 0, grad_input=d1)
            torch.addmm(g_w1, d1, x, beta=beta, out=g_w1)
            torch.addmv(g_b1, d1, ones, beta=beta, out=g_b1)

    def update(self, dt, noise):
        w, v, g, rho, tau, r, u, eps = (
            self.w, self.v, self.g, self.rho, self.tau, self.r, self.u, self.eps,
        )
        k, root = self.k, math.sqrt(2 * (1 - BETA1))
        alpha = k * dt**1.5
        rho.addcmul_(r, r, value=ETA / ROWS)
        rho.addcmul_(self.decay, tau, value=-ETA * alpha**2)
        rho.addcmul_(u, g, value=-ETA * k * dt**2 / root)
        torch.sigmoid(rho, out=tau)
        torch.rsqrt(tau, out=r)
        eps.normal_() if noise is None else eps.copy_(noise)
        torch.mul(r, eps, out=u)
        g.addcmul_(self.decay, w)
        v.mul_(BETA1).add_(g, alpha=-(dt**2)).add_(u, alpha=k * dt * root)
        u.mul_(tau)
        w.addcmul_(tau, v)
        w.mul_(self.mask)

    def step(self, rows, step, noise=None):
        with torch.inference_mode():
            self.gradient(rows)
            self.update(time_step(step), noise)


def whole_step(x, y, rows, w, v, rho, u, tau, decay, mask, eps, numbers, loss_sum):
    """`Flat` as one pure computation with its results written back, for the compiler to fuse."""
    # Numbers that change with dt come in a tensor: as Python floats each would be compiled in.
    dt2, drift, shrink, curvature, noise = numbers.unbind()
    w1, b1, w2, b2, w3, b3 = pieces(w)
    x, y = x[rows], y[rows]
    h1 = torch.relu(torch.addmm(b1, x, w1.t()))
    h2 = torch.relu(torch.addmm(b2, h1, w2.t()))
    e = torch.addmm(b3, h2, w3.t()) - y[:, None]
    loss_sum += 0.5 * (e * e).mean()
    e = e / rows.shape[0]
    d2 = (e * w3) * (h2 > 0)
    d1 = (d2 @ w2) * (h1 > 0)
    parts = d1.t() @ x, d1.sum(0), d2.t() @ h1, d2.sum(0), e.t() @ h2, e.sum(0)
    g = torch.cat([part.flatten() for part in parts])
    rho += drift / tau - shrink * decay * tau - curvature * u * g
    tau.copy_(torch.sigmoid(rho))
    r = torch.rsqrt(tau)
    v.copy_(BETA1 * v - dt2 * (g + decay * w) + noise * r * eps)
    u.copy_(tau * r * eps)
    w.copy_((w + tau * v) * mask)


class Compiled(Flat):
    """`whole_step` under torch.compile. Noise is drawn outside: the compiler's own is slower here."""

    def __init__(self, *problem):
        super().__init__(*problem)
        self.run = torch.compile(whole_step, fullgraph=True, dynamic=False)
        self.numbers = torch.empty(5)

    def step(self, rows, step, noise=None):
        dt = time_step(step)
        k, root = self.k, math.sqrt(2 * (1 - BETA1))
        alpha, curvature = k * dt**1.5, ETA * k * dt**2 / root
        numbers = (dt**2, ETA / ROWS, ETA * alpha**2, curvature, k * dt * root)
        with torch.no_grad():
            self.numbers.copy_(torch.tensor(numbers))
            self.eps.normal_() if noise is None else self.eps.copy_(noise)
            self.run(
                self.x, self.y, rows, self.w, self.v, self.rho, self.u, self.tau,
                self.decay, self.mask, self.eps, self.numbers, self.loss_sum,
            )


def largest_differences(variants, x, y):
    """Twelve steps of each variant from the same start with the same noise, mixed decay and a mask.

    Returns how far each is from the first, in weights and in rho, relative to their largest value.
    k is 1, so that every term of the rho update is large enough to be seen.
    """
    generator = torch.Generator().manual_seed(7)
    uniform = torch.rand(2, WEIGHTS, generator=generator)
    decay = torch.where(uniform[0] < 0.5, SLAB_DECAY, SPIKE_DECAY)
    mask = (uniform[1] < 0.9).float()
    order = torch.randperm(ROWS, generator=generator).split(BATCH)
    noise = torch.randn(12, WEIGHTS, generator=generator)
    results = {}
    for name, make in variants.items():
        variant = make(x, y, start_weights(3), decay, mask)
        variant.k = 1.0
        for step in range(12):
            variant.step(order[step % STEPS_PER_EPOCH], step, noise[step])
        results[name] = variant.results()
    first = next(iter(results.values()))

    def distance(one, what):
        return ((one[what] - first[what]).abs().max() / first[what].abs().max()).item()

    return {name: max(distance(one, what) for what in first) for name, one in results.items()}


def measure(variant, epochs, warm_up_epochs):
    """Milliseconds a step, one number an epoch."""
    torch.manual_seed(1)
    order = torch.empty(ROWS, dtype=torch.int64)
    batches = order.split(BATCH)
    step, times = 0, []
    for epoch in range(warm_up_epochs + epochs):
        began = time.perf_counter()
        torch.randperm(ROWS, out=order)
        for rows in batches:
            variant.step(rows, step)
            step += 1
        if epoch >= warm_up_epochs:
            times.append((time.perf_counter() - began) * 1e3 / len(batches))
    if not variant.results()["weights"].isfinite().all():
        raise SystemExit(f"{type(variant).__name__}: a weight is not finite")
    return times


def cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.processor() or platform.machine()


def cpp_compiler():
    return next(filter(shutil.which, filter(None, (os.environ.get("CXX"), "g++", "clang++"))), None)


def all_cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def main():
    names = ["authors", "flat", "compiled"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=all_cores(), help="default: all cores")
    parser.add_argument("--steps", type=int, default=2000, help="steps to time, in whole epochs")
    parser.add_argument("--warmup", type=int, default=200, help="steps before that")
    parser.add_argument("--variants", default=",".join(names), help="default: %(default)s")
    parser.add_argument("--block", type=int, help="rows a block of flat; default: the fastest of four")
    given = parser.parse_args()
    chosen = given.variants.split(",")
    if unknown := set(chosen) - set(names):
        parser.error(f"no such variant: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if min(given.threads, given.steps) < 1 or given.warmup < 0:
        parser.error("--threads and --steps must be at least 1, --warmup at least 0")
    torch.set_num_threads(given.threads)
    epochs = math.ceil(given.steps / STEPS_PER_EPOCH)
    warm_up_epochs = math.ceil(given.warmup / STEPS_PER_EPOCH)

    x, y = simulate(1)
    kinds = {"authors": Authors, "flat": Flat, "compiled": Compiled}
    # The flat variant in blocks is checked too; 300 divides neither batch.
    checked = {"authors": Authors, "flat": Flat, "blocks": lambda *p: Flat(*p, block=300)}
    result = {}
    if "compiled" in chosen:
        problem = "no C++ compiler (g++, clang++ or $CXX) was found" if cpp_compiler() is None else None
        if problem is None:
            try:
                largest_differences({"compiled": Compiled}, x, y)
                checked["compiled"] = Compiled
            except Exception as error:  # whatever a compiler can run into; the others still count
                problem = f"torch.compile failed: {str(error).strip().splitlines()[0]}"
        if problem is not None:
            print(f"step.py: compiled is skipped: {problem}", file=sys.stderr)
            result["compiled"] = {"skipped": problem}
            chosen.remove("compiled")
    differences = largest_differences(checked, x, y)
    for name, difference in differences.items():
        if not difference < 1e-4:
            raise SystemExit(f"{name} computes something else: relative difference {difference:.1e}")

    problem = x, y, start_weights(2), torch.full((WEIGHTS,), SLAB_DECAY), torch.ones(WEIGHTS)
    for name in chosen:
        settings = {}
        if name == "flat":
            sizes = [given.block] if given.block else [BATCH, BATCH // 2, BATCH // 4, BATCH // 8]
            trial = {b: min(measure(Flat(*problem, block=b), 10, 5)) for b in sizes}
            settings["block"] = min(trial, key=trial.get)
        times = measure(kinds[name](*problem, **settings), epochs, warm_up_epochs)
        timed = {"median_ms": statistics.median(times), "best_ms": min(times)}
        result[name] = {key: round(value, 5) for key, value in timed.items()} | settings
    report = {
        "what": "one step of Example 1, batch 1024, 5027 weights",
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu": cpu_model(),
        "steps": epochs * STEPS_PER_EPOCH,
        "warmup": warm_up_epochs * STEPS_PER_EPOCH,
        "variants": result,
        "largest_relative_difference": max(differences.values()),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
