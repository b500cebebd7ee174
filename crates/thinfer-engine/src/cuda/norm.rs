//! Batch norms on the way forward: statistics and one pass with everything fused into it, in one
//! kernel where the tensor fits it.

use super::fuse::{Norm, Other};
use super::launch::Which;
use super::lower::Lower;
use super::nvrtc::source;
use super::step::{Arg, Launch, Place, Space, Step};
use crate::network::Op;

/// Arguments of the kernels that make statistics.
struct Reads {
    /// Two inputs and their sum, or one input.
    input: [Place; 3],
    /// Scale, shift, coefficients, running mean and variance.
    norm: [Place; 5],
    /// Momentum and epsilon.
    numbers: [Arg; 2],
}

impl Lower<'_> {
    pub(super) fn norm_forward(&mut self, unit: &Norm) {
        let mut more = Vec::new();
        let mut part = Vec::new();
        let (other, saved2) = match unit.other {
            Other::None => (Place::NOTHING, Place::NOTHING),
            Other::Value(v) => {
                more.push("RES=1");
                (self.values[v], Place::NOTHING)
            }
            Other::Norm(n) => {
                more.push("RES=2");
                self.norm_stats(n, false);
                (self.values[self.network.nodes()[n].inputs[0].0], self.saved[n])
            }
            Other::Part(spread) => {
                more.extend(["RES=1", "PART"]);
                let from = self.network.nodes()[spread].inputs[0].0;
                part.push(Arg::U32(self.channels(from) as u32));
                (self.values[from], Place::NOTHING)
            }
        };
        if let Some(first) = self.first_normed(unit) {
            more.push("FROM");
            part.push(Arg::U32(first as u32));
        }
        self.values[unit.out] = self.arena(self.bytes(unit.out));
        if unit.relu {
            more.push("RELU");
        }
        let step = self.norm_apply(unit, &more, [other, saved2, Place::NOTHING], &part);
        self.program.inference.push(step);
        // The cut of a sum cannot be made again from x, so it is kept: one bit a value.
        if unit.relu && unit.other != Other::None && self.options.training {
            let group = if self.channels(unit.out).is_multiple_of(8) { 8 } else { 1 };
            self.kept[unit.out] = self.arena(self.len(unit.out) / group);
            more.push("MASK");
        }
        let places = [other, saved2, self.kept[unit.out]];
        let step = self.norm_whole(unit, &more, places, &part).unwrap_or_else(|| {
            self.norm_stats(unit.node, unit.sums);
            self.norm_apply(unit, &more, places, &part)
        });
        self.program.training.push(step);
    }

    /// The channel of the sum from which on it is normed, where that is not the first.
    pub(super) fn first_normed(&self, unit: &Norm) -> Option<usize> {
        unit.spread.map(|_| self.channels(unit.out) - self.channels(unit.node))
    }

    /// The pass over a norm's values, with coefficients that are there already.
    fn norm_apply(
        &mut self,
        unit: &Norm,
        more: &[&'static str],
        [other, saved2, mask]: [Place; 3],
        part: &[Arg],
    ) -> Step {
        let from = self.network.nodes()[unit.node].inputs[0].0;
        let args = vec![
            Arg::At(self.values[from]),
            Arg::At(self.saved[unit.node]),
            Arg::At(other),
            Arg::At(saved2),
            Arg::At(self.values[unit.out]),
            Arg::At(mask),
        ];
        let more = [&["K_norm_apply"], more].concat();
        self.tiled(Which::Pass, unit.out, "norm_apply", &more, args, part)
    }

    /// Statistics and the pass over values in one kernel.
    fn norm_whole(
        &mut self,
        unit: &Norm,
        more: &[&'static str],
        [other, saved2, mask]: [Place; 3],
        part: &[Arg],
    ) -> Option<Step> {
        let reads = self.norm_reads(unit.node, unit.sums)?;
        let mut args = reads.input.map(Arg::At).to_vec();
        args.extend([other, saved2, self.values[unit.out], mask].map(Arg::At));
        args.extend([Space::Scratch, Space::Counters].map(|s| Arg::At(Place::new(s, 0))));
        args.extend(reads.norm.map(Arg::At));
        let mut more = [&["K_norm_forward"], more].concat();
        if unit.sums {
            more.push("SUM_IN");
        }
        self.whole(unit.out, "norm_forward", &more, args, &[&reads.numbers, part].concat())
    }

    fn norm_stats(&mut self, norm: usize, sums: bool) {
        let Some(reads) = self.norm_reads(norm, sums) else { return };
        let more: &[&str] = if sums { &["K_norm_stats", "SUM_IN"] } else { &["K_norm_stats"] };
        let mut args = reads.input.map(Arg::At).to_vec();
        args.extend([Space::Scratch, Space::Counters].map(|s| Arg::At(Place::new(s, 0))));
        args.extend(reads.norm.map(Arg::At));
        let step = self.tiled(Which::Reduction, norm, "norm_stats", more, args, &reads.numbers);
        self.program.training.push(step);
    }

    /// What the statistics of a norm read and write. `sums`: its input is a sum that is made on the
    /// way.
    fn norm_reads(&self, norm: usize, sums: bool) -> Option<Reads> {
        let node = &self.network.nodes()[norm];
        let Op::BatchNorm { scale, shift, mean, variance, momentum, eps } = node.op else {
            return None;
        };
        let from = node.inputs[0].0;
        let x = self.values[from];
        let input = if sums {
            let inputs = &self.network.nodes()[from].inputs;
            [self.values[inputs[0].0], self.values[inputs[1].0], x]
        } else {
            [x, Place::NOTHING, Place::NOTHING]
        };
        let norm = [
            self.param(scale, Space::Weights),
            self.param(shift, Space::Weights),
            self.saved[norm],
            self.stat(mean),
            self.stat(variance),
        ];
        Some(Reads { input, norm, numbers: [Arg::F32(momentum as f32), Arg::F32(eps as f32)] })
    }

    /// One kernel that turns all running statistics into coefficients; also gives every norm its
    /// place for them.
    pub(super) fn norm_fold(&mut self) -> Option<Step> {
        let first = self.program.constants.len();
        let mut norms = 0u32;
        let mut end = 0;
        let nodes = self.network.nodes();
        for node in nodes {
            let Op::BatchNorm { scale, shift, mean, variance, eps, .. } = node.op else { continue };
            let (params, stats) = (self.network.params(), self.network.stats());
            self.program.constants.extend([
                params[scale].offset as u32,
                params[shift].offset as u32,
                stats[mean].offset as u32,
                stats[variance].offset as u32,
                end as u32,
                node.shape.channels as u32,
                (eps as f32).to_bits(),
                0,
            ]);
            end += 6 * node.shape.channels;
            norms += 1;
        }
        if norms == 0 {
            return None;
        }
        let base = self.arena(end * 4);
        let mut at = base.offset;
        for (i, node) in nodes.iter().enumerate() {
            if matches!(node.op, Op::BatchNorm { .. }) {
                self.saved[i] = Place::new(Space::Arena, at);
                at += 6 * node.shape.channels * 4;
            }
        }
        let args = vec![
            Arg::At(Place::new(Space::Constants, first * 4)),
            Arg::At(Place::new(Space::Weights, 0)),
            Arg::At(Place::new(Space::Stats, 0)),
            Arg::At(base),
        ];
        let defines = self.defines(true, &["K_norm_fold"]);
        Some(Step::Kernel(Launch {
            source: source::NORM,
            entry: "norm_fold",
            defines,
            grid: [norms, 1],
            block: 256,
            args,
        }))
    }
}
