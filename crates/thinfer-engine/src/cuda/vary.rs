//! Random channel scales: drawn once a pass for every row and channel, kept for the way back.

use super::launch::Elements;
use super::lower::Lower;
use super::nvrtc::source;
use super::step::{Arg, Launch, Place, Space, Step};
use crate::mixture::Law;
use crate::network::Op;

/// Groups of channels that a block of the way back takes, at most.
const WIDEST: usize = 32;
/// Channels that a block of the last sums takes.
const COLUMNS: usize = 32;
const THREADS: u32 = 256;

impl Lower<'_> {
    /// Whether a node multiplies the input by random scales. It is padded like the input.
    pub(super) fn varies_input(&self, at: usize) -> bool {
        let node = &self.network.nodes()[at];
        matches!(node.op, Op::Vary { .. }) && node.inputs[0].0 == 0
    }

    /// Draws the scales of node `at` and applies them to `x`.
    pub(super) fn vary_forward(&mut self, at: usize, [x, y]: [Place; 2]) {
        let Op::Vary { posterior, bias, mixture } = self.network.nodes()[at].op else { return };
        let len = self.options.batch * self.channels(at);
        let (scales, slopes) = (self.arena(len * 4), self.arena(len * 4));
        (self.kept[at], self.saved[at]) = (scales, slopes);
        let noise = Place::new(Space::Noise, 0);
        let wide = self.is_wide(at);
        let vector = !wide && self.channels(at).is_multiple_of(8);
        let elements = Elements::groups(self.len(at), vector, self.sms);
        for training in [true, false] {
            let mut more = Vec::new();
            more.extend(training.then_some("TRAIN"));
            more.extend((mixture.law == Law::Cauchy).then_some("CAUCHY"));
            let of_posterior = self.param(posterior, Space::Weights);
            let places = [of_posterior, noise, Place::new(Space::Step, 0), scales, slopes];
            let mut args = places.map(Arg::At).to_vec();
            args.push(self.vary_sizes(at));
            let draws = Elements::plain(len, self.sms);
            let draw = draws.step(source::VARY, "vary_draw", self.defines(false, &more), args);
            more.extend(wide.then_some("WIDE"));
            let bias = bias.map_or(Place::NOTHING, |bias| self.param(bias, Space::Weights));
            let mut args = [x, y, scales, bias, noise].map(Arg::At).to_vec();
            args.extend([self.vary_sizes(at), Arg::U32(elements.count)]);
            let defines = self.defines(vector, &more);
            let apply = elements.step(source::VARY, "vary_forward", defines, args);
            let steps =
                if training { &mut self.program.training } else { &mut self.program.inference };
            steps.extend([draw, apply]);
        }
    }

    /// Gradients of locations, pre-scales and biases, and of the input where `dx` is wanted.
    pub(super) fn vary_backward(&mut self, at: usize, dy: Place, dx: Option<Place>) {
        let node = &self.network.nodes()[at];
        let Op::Vary { posterior, bias, mixture } = node.op else { return };
        let (x, channels, own) =
            (self.values[node.inputs[0].0], self.channels(at), node.shape.channels);
        let wide = self.is_wide(at);
        let vector = !wide && channels.is_multiple_of(8);
        let groups = if vector { channels / 8 } else { channels };
        let width = groups.min(WIDEST);
        let bytes = self.options.batch * channels * 4;
        let (sums, shifts) = (self.pool.take(bytes), bias.map(|_| self.pool.take(bytes)));
        let of_sums = Place::new(Space::Arena, sums);
        let of_shifts = shifts.map_or(Place::NOTHING, |at| Place::new(Space::Arena, at));
        let mut more = vec!["TRAIN"];
        more.extend(bias.map(|_| "BIAS"));
        let (scales, slopes) = (self.kept[at], self.saved[at]);
        let places = [of_sums, of_shifts, scales, slopes];
        let mut last = places.map(Arg::At).to_vec();
        last.push(Arg::At(self.param(posterior, Space::Gradient)));
        let of_bias = bias.map_or(Place::NOTHING, |bias| self.param(bias, Space::Gradient));
        last.extend([Arg::At(of_bias), self.vary_sizes(at)]);
        let columns = own.div_ceil(COLUMNS) as u32;
        let total = Launch {
            source: source::VARY,
            entry: "vary_gradient",
            defines: self.defines(false, &more),
            grid: [columns, mixture.members as u32],
            block: THREADS,
            args: last,
        };
        more.extend(wide.then_some("WIDE"));
        more.extend(dx.map(|_| "DX"));
        let to = dx.unwrap_or(Place::NOTHING);
        let mut args = [x, dy, scales, to, of_sums, of_shifts].map(Arg::At).to_vec();
        args.extend([self.vary_sizes(at), Arg::U32(width as u32)]);
        let by_row = Launch {
            source: source::VARY,
            entry: "vary_backward",
            defines: self.defines(vector, &more),
            grid: [self.options.batch as u32, groups.div_ceil(width) as u32],
            block: THREADS,
            args,
        };
        self.program.training.extend([Step::Kernel(by_row), Step::Kernel(total)]);
        for given in [Some(sums), shifts].into_iter().flatten() {
            self.pool.give(given, bytes);
        }
    }

    fn vary_sizes(&self, at: usize) -> Arg {
        let nodes = self.network.nodes();
        let shape = nodes[at].shape;
        let words = [
            self.options.batch,
            shape.height * shape.width,
            self.channels(at),
            shape.channels,
            self.network.repeats(),
            self.network.scales_before(at),
            self.network.scales_before(nodes.len()),
        ];
        Arg::Words(words.iter().map(|word| *word as u32).collect())
    }
}
