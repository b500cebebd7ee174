//! From a network to a program: needs no GPU, so it can be tested and sized anywhere.

use std::collections::VecDeque;

use super::Precision;
use super::conv::Problem;
use super::dnn::{Direction, Geometry};
use super::fuse::{self, Join, Other, Unit};
use super::launch::{Elements, Tile, Which};
use super::linear::Product;
use super::memory::Pool;
use super::nvrtc::source;
use super::step::{Arg, Launch, Place, Program, Space, Step};
use super::weights::UNFOLDED;
use crate::error::EngineError;
use crate::network::{Curve, Family, Network, NodeId, Op};
use crate::ops::Kernels;
use crate::ops::loss::{Loss, Scale};
use crate::shape::Window;

/// How a network is to be run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanOptions {
    /// Rows of every batch.
    pub batch: usize,
    /// The arithmetic.
    pub precision: Precision,
    /// Whether the same inputs must give the same bits in every run.
    pub deterministic: bool,
    /// Whether gradients are wanted; without them a plan is smaller.
    pub training: bool,
    /// Whether to take one of the first engines for each convolution instead of looking for the
    /// fastest: for plans that are not used for long.
    pub hasty: bool,
}

pub(super) struct Lower<'a> {
    pub(super) network: &'a Network,
    pub(super) options: PlanOptions,
    pub(super) sms: u32,
    pub(super) pool: Pool,
    /// Filter gradients so far, and buffers that they may still be reading.
    pub(super) filters: usize,
    pub(super) held: VecDeque<(usize, usize, usize)>,
    pub(super) program: Program,
    /// Where each node's value lies.
    pub(super) values: Vec<Place>,
    /// What each unit keeps for the way back: masks of cut values, positions of maxima.
    pub(super) kept: Vec<Place>,
    /// Where a batch norm keeps its coefficients.
    pub(super) saved: Vec<Place>,
    pub(super) units: Vec<Unit>,
    pub(super) summed: Vec<bool>,
    /// Readers that still need a value, where values are given back.
    waiting: Vec<usize>,
    /// Pieces of weights to copy before, and of gradients to copy after.
    pub(super) pack: Vec<[u32; 6]>,
    pub(super) unpack: Vec<[u32; 6]>,
    pub(super) weight_places: Vec<Option<Place>>,
}

/// Lowers a network for a device with `sms` multiprocessors.
pub(crate) fn lower(
    network: &Network,
    options: PlanOptions,
    sms: u32,
) -> Result<Program, EngineError> {
    let nodes = network.nodes().len();
    let units = fuse::units(network, |channels| Tile::whole(1, channels, sms).is_some());
    let mut waiting: Vec<usize> = fuse::readers(network).iter().map(Vec::len).collect();
    waiting[network.output().0] += 1;
    let mut lower = Lower {
        network,
        options,
        sms,
        pool: Pool::default(),
        program: Program { counters: 1, ..Program::default() },
        values: vec![Place::NOTHING; nodes],
        kept: vec![Place::NOTHING; nodes],
        saved: vec![Place::NOTHING; nodes],
        summed: fuse::summed(network, &units),
        units,
        waiting,
        filters: 0,
        held: VecDeque::new(),
        pack: Vec::new(),
        unpack: Vec::new(),
        weight_places: vec![None; network.params().iter().count()],
    };
    lower.check()?;
    lower.program.input_channels = lower.input_channels();
    lower.values[0] = Place::new(Space::Input, 0);
    let fold = lower.norm_fold();
    for unit in lower.units.clone() {
        lower.forward(&unit);
    }
    let d = lower.head();
    lower.program.activations = lower.pool.size();
    if let (Some(fold), false) = (fold, network.stats().is_empty()) {
        lower.program.inference.insert(0, fold);
    }
    lower.program.forward = lower.program.training.len();
    if options.training {
        lower.backward(d);
    } else {
        lower.program.training.clear();
        lower.program.forward = 0;
    }
    lower.start_with_packing();
    lower.program.arena = lower.pool.size();
    Ok(lower.program)
}

impl Lower<'_> {
    fn check(&self) -> Result<(), EngineError> {
        match self.network.loss() {
            loss if loss.is_by_row() => {
                let problem = "predicts the noise of each row, which runs on the CPU alone; train with --device cpu";
                return Err(EngineError::Network { node: "loss".into(), problem: problem.into() });
            }
            Loss::Gaussian { .. } | Loss::Bernoulli | Loss::CrossEntropy { .. } => {}
            Loss::StudentT { .. } | Loss::Poisson { .. } | Loss::NegativeBinomial { .. } => {
                let problem = "is a likelihood that runs on the CPU alone; train with --device cpu";
                return Err(EngineError::Network { node: "loss".into(), problem: problem.into() });
            }
        }
        for node in self.network.nodes() {
            let values = node.shape.len().checked_mul(self.options.batch);
            if values.is_none_or(|v| v >= u32::MAX as usize / 2) {
                let (rows, columns) = (self.options.batch, node.shape.len());
                return Err(EngineError::Overflow { what: "an activation", rows, columns });
            }
            if let Family::Pool(pool) = node.op.family()
                && let Kernels { keeps: Some(most), window: Some(window), .. } = pool.kernels()
                && window.size[0] * window.size[1] > most
            {
                let problem =
                    format!("has a window of more than {most} pixels; CUDA runs smaller ones");
                return Err(EngineError::Network { node: node.name.clone(), problem });
            }
        }
        Ok(())
    }

    /// Tensor cores read 8 channels (4 in f32) at once: where convolutions alone read the input,
    /// be it through random scales, it is padded to that.
    fn input_channels(&self) -> usize {
        let (nodes, channels) = (self.network.nodes(), self.network.nodes()[0].shape.channels);
        let readers =
            |id: usize| (1..nodes.len()).filter(move |at| nodes[*at].inputs.contains(&NodeId(id)));
        let conv = |at: usize| matches!(nodes[at].op, Op::Conv2d { .. });
        let varied = |at: usize| self.varies_input(at) && readers(at).all(conv);
        let mut convs = readers(0).map(|at| conv(at) || varied(at));
        let group = if self.options.precision == Precision::Bf16 { 8 } else { 4 };
        if convs.all(|c| c) && channels < group { group } else { channels }
    }

    pub(super) fn channels(&self, node: usize) -> usize {
        if node == 0 || self.varies_input(node) {
            self.program.input_channels
        } else {
            self.network.nodes()[node].shape.channels
        }
    }

    /// Rows of pixels in a batch.
    pub(super) fn pixels(&self, node: usize) -> usize {
        let shape = self.network.nodes()[node].shape;
        self.options.batch * shape.height * shape.width
    }

    pub(super) fn len(&self, node: usize) -> usize {
        self.pixels(node) * self.channels(node)
    }

    pub(super) fn bytes(&self, node: usize) -> usize {
        self.len(node) * self.options.precision.bytes()
    }

    /// Whether a node's value is f32 in every precision: the output where it is a linear layer,
    /// with the random scales behind it.
    pub(super) fn is_wide(&self, at: usize) -> bool {
        let (nodes, out) = (self.network.nodes(), self.network.output().0);
        let linear = |at: usize| matches!(nodes[at].op, Op::Linear { .. });
        if !matches!(nodes[out].op, Op::Vary { .. }) {
            return at == out && linear(at);
        }
        let from = nodes[out].inputs[0];
        let alone = nodes.iter().filter(|node| node.inputs.contains(&from)).count() == 1;
        linear(from.0) && alone && (at == out || at == from.0)
    }

    /// Bytes of a node's value.
    fn value_bytes(&self, at: usize) -> usize {
        if self.is_wide(at) { self.len(at) * 4 } else { self.bytes(at) }
    }

    pub(super) fn arena(&mut self, bytes: usize) -> Place {
        Place::new(Space::Arena, self.pool.take(bytes))
    }

    pub(super) fn param(&self, at: usize, space: Space) -> Place {
        Place::new(space, self.network.params()[at].offset * 4)
    }

    pub(super) fn stat(&self, at: usize) -> Place {
        Place::new(Space::Stats, self.network.stats()[at].offset * 4)
    }

    /// Defines that every kernel over activations gets.
    pub(super) fn defines(&self, vector: bool, more: &[&'static str]) -> Vec<&'static str> {
        let mut defines = vec![if vector { "V=8" } else { "V=1" }];
        if self.options.precision == Precision::Bf16 {
            defines.push("ACT_BF16");
        }
        defines.extend(more);
        defines
    }

    /// A kernel that tiles rows and channels of `node`. `args` end with rows, channels, width.
    pub(super) fn tiled(
        &mut self,
        which: Which,
        node: usize,
        entry: &'static str,
        more: &[&'static str],
        mut args: Vec<Arg>,
        last: &[Arg],
    ) -> Step {
        let (rows, channels) = (self.pixels(node), self.channels(node));
        let tile = Tile::new(which, rows, channels, self.sms);
        self.program.scratch = self.program.scratch.max(tile.scratch());
        self.program.counters = self.program.counters.max(tile.grid[1] as usize);
        args.extend([Arg::U32(rows as u32), Arg::U32(channels as u32), Arg::U32(tile.width)]);
        args.extend_from_slice(last);
        tile.step(source::NORM, entry, self.defines(tile.vector, more), args)
    }

    /// A kernel that sums over the rows of `node` and then goes over them again. `args` end with
    /// rows, channels and width. `None` where the tensor does not fit such a kernel.
    pub(super) fn whole(
        &mut self,
        node: usize,
        entry: &'static str,
        more: &[&'static str],
        mut args: Vec<Arg>,
        last: &[Arg],
    ) -> Option<Step> {
        let (rows, channels) = (self.pixels(node), self.channels(node));
        let tile = Tile::whole(rows, channels, self.sms)?;
        self.program.scratch = self.program.scratch.max(tile.scratch());
        // Three counters a column of blocks.
        self.program.counters = self.program.counters.max(3 * tile.grid[1] as usize);
        args.extend([rows, channels, tile.width as usize].map(|v| Arg::U32(v as u32)));
        args.extend_from_slice(last);
        let mut defines = self.defines(true, &["THREADS=512"]);
        defines.extend(more);
        Some(tile.step(source::WHOLE, entry, defines, args))
    }

    /// A kernel over all `len` values.
    pub(super) fn each(
        &self,
        len: usize,
        entry: &'static str,
        more: &[&'static str],
        mut args: Vec<Arg>,
        last: &[Arg],
    ) -> Step {
        let elements = Elements::new(len, self.sms);
        args.push(Arg::U32(elements.count));
        args.extend_from_slice(last);
        elements.step(source::ELEMENTWISE, entry, self.defines(elements.vector, more), args)
    }

    /// A step of training and of inference.
    pub(super) fn both(&mut self, step: Step) {
        self.program.training.push(step.clone());
        self.program.inference.push(step);
    }

    fn forward(&mut self, unit: &Unit) {
        match unit {
            Unit::Norm(unit) => self.norm_forward(unit),
            Unit::Plain(at) => self.plain_forward(*at),
            Unit::Join(unit) => self.join_forward(unit),
        }
        if !self.options.training {
            self.give_back(unit);
        }
    }

    /// Without a way back, a value can go when its last reader has run.
    fn give_back(&mut self, unit: &Unit) {
        let nodes = self.network.nodes();
        let mut read: Vec<usize> = Vec::new();
        match unit {
            Unit::Plain(at) => read.extend(nodes[*at].inputs.iter().map(|i| i.0)),
            Unit::Join(join) => read.extend([nodes[join.spread].inputs[0].0, join.other]),
            Unit::Norm(n) => {
                read.push(nodes[n.node].inputs[0].0);
                match n.other {
                    Other::Value(v) => read.push(v),
                    Other::Norm(o) | Other::Part(o) => read.push(nodes[o].inputs[0].0),
                    Other::None => {}
                }
            }
        }
        for node in read {
            self.waiting[node] -= 1;
            let place = self.values[node];
            if self.waiting[node] == 0 && place.space == Space::Arena {
                let bytes = self.value_bytes(node);
                self.pool.give(place.offset, bytes);
            }
        }
    }

    fn plain_forward(&mut self, at: usize) {
        let node = &self.network.nodes()[at];
        let from = node.inputs[0].0;
        let x = self.values[from];
        let (wide, bytes) = (self.is_wide(at), self.value_bytes(at));
        let y = self.arena(bytes);
        self.values[at] = y;
        match node.op.family() {
            // Norms have units of their own.
            Family::Input | Family::Norm { .. } => {}
            Family::Weights { weight, bias, window: Some(window) } => {
                let w = self.conv_weight(weight, from);
                let x = if self.unfolds(weight, from) { self.unfold(at, window) } else { x };
                let problem = self.problem(Direction::Forward, at, weight, window);
                self.both(Step::Conv(problem, [x, w, y]));
                if let Some(bias) = bias {
                    self.add_bias(at, y, bias);
                }
            }
            Family::Weights { weight, bias, window: None } => {
                let w = self.flat_weight(weight);
                let product = self.product(Direction::Forward, from, at, wide, [w, x, y]);
                self.both(Step::Product(product, [w, x, y]));
                if let (Some(bias), true) = (bias, wide) {
                    let elements = Elements::plain(self.len(at), self.sms);
                    let args = vec![
                        Arg::At(y),
                        Arg::At(self.param(bias, Space::Weights)),
                        Arg::U32(elements.count),
                        Arg::U32(self.channels(at) as u32),
                    ];
                    let defines = self.defines(false, &[]);
                    self.both(elements.step(source::ELEMENTWISE, "add_bias_f32", defines, args));
                } else if let Some(bias) = bias {
                    self.add_bias(at, y, bias);
                }
            }
            Family::Curve(curve) => {
                let more = curve_define(curve);
                let args = vec![Arg::At(x), Arg::At(y)];
                self.both(self.each(self.len(at), "curve_forward", more, args, &[]));
            }
            Family::Sum => {
                let args = vec![Arg::At(x), Arg::At(self.values[node.inputs[1].0]), Arg::At(y)];
                let step = self.each(self.len(at), "sum_two", &[], args, &[]);
                if !self.summed[at] {
                    self.program.training.push(step.clone());
                }
                self.program.inference.push(step);
            }
            Family::Pool(pool) => self.pool_forward(at, pool.kernels(), [x, y]),
            Family::List(..) => {
                let map = self.channel_map(at, false);
                let step = self.choose(map, at, [from, at], [x, y]);
                self.both(step);
            }
            Family::Scales { .. } => self.vary_forward(at, [x, y]),
        }
    }

    fn join_forward(&mut self, unit: &Join) {
        let (from, out) = (self.network.nodes()[unit.spread].inputs[0].0, unit.out);
        let bytes = self.bytes(out);
        let y = self.arena(bytes);
        self.values[out] = y;
        let map = self.channel_map(unit.spread, false);
        let places = [self.values[from], self.values[unit.other], y, map].map(Arg::At).to_vec();
        let more: &[&str] = if unit.relu { &["RELU"] } else { &[] };
        let widths = [from, out].map(|node| self.channels(node));
        let step = self.by_channel("join", more, (out, widths), places);
        self.both(step);
    }

    /// The table of a [`Op::Select`], [`Op::Pick`] or [`Op::Spread`]: for each channel written, the
    /// one to read. `back`: of the way back, which reads what the way forward writes.
    pub(super) fn channel_map(&mut self, at: usize, back: bool) -> Place {
        let node = &self.network.nodes()[at];
        let list = node.list();
        let spreads = matches!(node.op, Op::Spread { .. });
        let map = if spreads == back {
            list.to_vec()
        } else {
            let written =
                if back { self.by_list(at, node.inputs[0].0) } else { node.shape.channels };
            let mut map = vec![u32::MAX; written];
            list.iter().enumerate().for_each(|(j, to)| map[*to as usize] = j as u32);
            map
        };
        let place = Place::new(Space::Constants, self.program.constants.len() * 4);
        self.program.constants.extend(map);
        place
    }

    /// How many numbers of `node` the list of node `at` chooses among at a time: the channels of a
    /// pixel, or a whole row.
    fn by_list(&self, at: usize, node: usize) -> usize {
        if let Op::Pick { .. } = self.network.nodes()[at].op {
            self.network.nodes()[node].shape.len()
        } else {
            self.channels(node)
        }
    }

    /// Reads channels of node `from` by the table of node `at` and writes those of node `to`.
    pub(super) fn choose(
        &self,
        map: Place,
        at: usize,
        [from, to]: [usize; 2],
        [x, y]: [Place; 2],
    ) -> Step {
        let widths = [from, to].map(|node| self.by_list(at, node));
        self.by_channel("choose", &[], (to, widths), [x, y, map].map(Arg::At).to_vec())
    }

    /// A kernel over the values of node `to`, so many channels at a time, that reads so many of
    /// another node.
    pub(super) fn by_channel(
        &self,
        entry: &'static str,
        more: &[&'static str],
        (to, [read, written]): (usize, [usize; 2]),
        mut args: Vec<Arg>,
    ) -> Step {
        let vector = written.is_multiple_of(8);
        let elements = Elements::groups(self.len(to), vector, self.sms);
        let sizes = [read as u32, written as u32, elements.count];
        args.extend(sizes.map(Arg::U32));
        elements.step(source::CHANNELS, entry, self.defines(vector, more), args)
    }

    /// Unfolds the input of a convolution; the result is kept for the way back.
    fn unfold(&mut self, at: usize, window: Window) -> Place {
        let len = self.pixels(at) * UNFOLDED;
        let to = self.arena(len * self.options.precision.bytes());
        self.kept[at] = to;
        let (a, b) = (self.network.nodes()[0].shape, self.network.nodes()[at].shape);
        let ([kh, kw], [sh, sw], [ph, pw]) = (window.size, window.stride, window.padding);
        let batch = [self.options.batch, a.height, a.width, a.channels, self.channels(0)];
        let words = [&batch[..], &[b.height, b.width, kh, kw, sh, sw, ph, pw]].concat();
        let words = words.iter().map(|w| *w as u32).collect();
        let args = vec![Arg::At(self.values[0]), Arg::At(to), Arg::Words(words)];
        let elements = Elements::new(len, self.sms);
        self.both(elements.step(source::UNFOLD, "unfold", self.defines(true, &[]), args));
        to
    }

    fn add_bias(&mut self, at: usize, y: Place, bias: usize) {
        let channels = self.channels(at);
        let vector = channels.is_multiple_of(8);
        let elements = Elements::groups(self.len(at), vector, self.sms);
        let args = vec![
            Arg::At(y),
            Arg::At(self.param(bias, Space::Weights)),
            Arg::U32(elements.count),
            Arg::U32(channels as u32),
        ];
        let defines = self.defines(vector, &[]);
        self.both(elements.step(source::ELEMENTWISE, "add_bias", defines, args));
    }

    /// The loss, and where its gradient with respect to the output goes. The output is f32.
    fn head(&mut self) -> usize {
        let out = self.network.output().0;
        let len = self.len(out);
        let output = if self.is_wide(out) {
            self.values[out]
        } else {
            let wide = self.arena(len * 4);
            let elements = Elements::plain(len, self.sms);
            let args = vec![Arg::At(self.values[out]), Arg::At(wide), Arg::U32(elements.count)];
            let defines = self.defines(false, &[]);
            self.both(elements.step(source::ELEMENTWISE, "widen", defines, args));
            wide
        };
        self.program.output = output.offset;
        let bytes = self.bytes(out);
        let d = self.pool.take(bytes);
        let batch = self.options.batch;
        let by_row = self.arena(batch * 8);
        let mut smooth = 0.0;
        let (head, sigma, dsigma, log_sigma) = match self.network.loss() {
            Loss::CrossEntropy { smoothing } => {
                smooth = *smoothing as f32;
                ("HEAD=0", Place::NOTHING, Place::NOTHING, 0.0)
            }
            Loss::Bernoulli => ("HEAD=2", Place::NOTHING, Place::NOTHING, 0.0),
            // Normal noise; `check` has refused the rest.
            loss => {
                let known = match loss.scale() {
                    Some(Scale::Known(sigma)) => sigma.ln() as f32,
                    _ => 0.0,
                };
                let at = |space| {
                    loss.scale_param().map_or(Place::NOTHING, |param| self.param(param, space))
                };
                ("HEAD=1", at(Space::Weights), at(Space::Gradient), known)
            }
        };
        let outputs = self.network.output_len();
        let words = vec![batch as u32, outputs as u32, smooth.to_bits(), log_sigma.to_bits()];
        let args = vec![
            Arg::At(output),
            Arg::At(Place::new(Space::Targets, 0)),
            Arg::At(Place::new(Space::Arena, d)),
            Arg::At(by_row),
            Arg::At(Place::new(Space::Counters, 0)),
            Arg::At(sigma),
            Arg::At(dsigma),
            Arg::At(Place::new(Space::Tally, 0)),
            Arg::At(Place::new(Space::Losses, 0)),
            Arg::At(Place::new(Space::Step, 0)),
            Arg::Words(words),
        ];
        let defines = self.defines(false, &[head]);
        self.program.training.push(Step::Kernel(Launch {
            source: source::LOSS,
            entry: "loss_head",
            defines,
            grid: [batch.div_ceil(4) as u32, 1],
            block: 128,
            args,
        }));
        d
    }

    /// One pass of the convolution `at`.
    pub(super) fn problem(
        &self,
        direction: Direction,
        at: usize,
        weight: usize,
        window: Window,
    ) -> Problem {
        let from = self.network.nodes()[at].inputs[0].0;
        let (a, b) = (self.network.nodes()[from].shape, self.network.nodes()[at].shape);
        let (n, c) = (self.options.batch, self.channels(from));
        let output = [n, b.channels, b.height, b.width];
        let geometry = if self.unfolds(weight, from) {
            Geometry {
                input: [n, UNFOLDED, b.height, b.width],
                filter: [b.channels, UNFOLDED, 1, 1],
                output,
                stride: [1, 1],
                padding: [0, 0],
            }
        } else {
            Geometry {
                input: [n, c, a.height, a.width],
                filter: [b.channels, c, window.size[0], window.size[1]],
                output,
                stride: window.stride,
                padding: window.padding,
            }
        };
        let (precision, deterministic) = (self.options.precision, self.options.deterministic);
        let (stored, hasty) = (self.conv_channels(weight, from).0, self.options.hasty);
        Problem { direction, geometry, stored, precision, deterministic, hasty }
    }

    pub(super) fn product(
        &self,
        direction: Direction,
        from: usize,
        at: usize,
        wide: bool,
        places: [Place; 3],
    ) -> Product {
        Product {
            direction,
            rows: self.options.batch,
            inputs: self.network.nodes()[from].shape.len(),
            outputs: self.network.nodes()[at].shape.len(),
            precision: self.options.precision,
            wide,
            alignment: places.map(Place::alignment),
        }
    }
}

/// The define that picks an activation.
pub(super) fn curve_define(curve: Curve) -> &'static [&'static str] {
    match curve {
        Curve::Relu => &[],
        Curve::Tanh => &["TANH"],
    }
}
