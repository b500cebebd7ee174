//! Batch norms on the way forward: statistics, then one pass with everything fused into it.

use super::fuse::{Norm, Other};
use super::launch::Which;
use super::lower::Lower;
use super::nvrtc::source;
use super::step::{Arg, Launch, Place, Space, Step};
use crate::network::Op;

impl Lower<'_> {
    pub(super) fn norm_forward(&mut self, unit: &Norm) {
        self.norm_stats(unit.node, unit.sums);
        let mut more = vec!["K_norm_apply"];
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
        };
        let from = self.network.nodes()[unit.node].inputs[0].0;
        let y = self.arena(self.bytes(unit.out));
        self.values[unit.out] = y;
        if unit.relu {
            more.push("RELU");
        }
        // The cut of a sum cannot be made again from x, so it is kept: one bit a value.
        let masked = unit.relu && unit.other != Other::None && self.options.training;
        if masked {
            let group = if self.channels(unit.out).is_multiple_of(8) { 8 } else { 1 };
            self.kept[unit.out] = self.arena(self.len(unit.out) / group);
        }
        let args = |mask: Place, this: &Self| {
            vec![
                Arg::At(this.values[from]),
                Arg::At(this.saved[unit.node]),
                Arg::At(other),
                Arg::At(saved2),
                Arg::At(y),
                Arg::At(mask),
            ]
        };
        let plain = args(Place::NOTHING, self);
        let step = self.tiled(Which::Pass, unit.out, "norm_apply", &more, plain, &[]);
        self.program.inference.push(step.clone());
        if masked {
            more.push("MASK");
            let args = args(self.kept[unit.out], self);
            let step = self.tiled(Which::Pass, unit.out, "norm_apply", &more, args, &[]);
            self.program.training.push(step);
        } else {
            self.program.training.push(step);
        }
    }

    fn norm_stats(&mut self, norm: usize, sums: bool) {
        let node = &self.network.nodes()[norm];
        let Op::BatchNorm { scale, shift, mean, variance, momentum, eps } = node.op else { return };
        let from = node.inputs[0].0;
        let x = self.values[from];
        let (a, b, sum) = if sums {
            let inputs = &self.network.nodes()[from].inputs;
            (self.values[inputs[0].0], self.values[inputs[1].0], x)
        } else {
            (x, Place::NOTHING, Place::NOTHING)
        };
        let more: &[&str] = if sums { &["K_norm_stats", "SUM_IN"] } else { &["K_norm_stats"] };
        let args = vec![
            Arg::At(a),
            Arg::At(b),
            Arg::At(sum),
            Arg::At(Place::new(Space::Scratch, 0)),
            Arg::At(Place::new(Space::Counters, 0)),
            Arg::At(self.param(scale, Space::Weights)),
            Arg::At(self.param(shift, Space::Weights)),
            Arg::At(self.saved[norm]),
            Arg::At(self.stat(mean)),
            Arg::At(self.stat(variance)),
        ];
        let last = [Arg::F32(momentum as f32), Arg::F32(eps as f32)];
        let step = self.tiled(Which::Reduction, norm, "norm_stats", more, args, &last);
        self.program.training.push(step);
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
