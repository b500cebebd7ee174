//! The way back: gradients are passed along as pending buffers and added by whoever reads them.

use super::dnn::Direction;
use super::fuse::{Join, Norm, Other, Unit};
use super::launch::Which;
use super::lower::{Lower, curve_define};
use super::step::{Arg, Place, Space, Step};
use crate::network::{Family, NodeId, Op};

/// A buffer with a gradient, and how many still want to read it.
struct Buffer {
    offset: usize,
    bytes: usize,
    holders: usize,
    /// The filter gradient that may still be reading it beside the main stream.
    reader: Option<usize>,
}

/// Filter gradients that may be under way beside the main stream. Each keeps one buffer from being
/// used again.
const UNDER_WAY: usize = 4;

/// Gradients that reach a norm, the mask of its cut, and where the gradient behind the cut goes:
/// all of it, or so many channels.
#[derive(Clone, Copy)]
struct Arrives {
    /// The node whose gradients they are.
    at: usize,
    d: Place,
    d2: Place,
    mask: Place,
    out: Place,
    part: Option<usize>,
    /// The channel from which on there is a norm, where that is not the first.
    first: Option<usize>,
}

impl Arrives {
    /// The last arguments of kernels that write a part, or that norm one.
    fn last(&self) -> Vec<Arg> {
        [self.part, self.first].into_iter().flatten().map(|n| Arg::U32(n as u32)).collect()
    }
}

/// What the way back keeps track of.
struct Pending {
    buffers: Vec<Buffer>,
    /// By node: gradients that have arrived and are not added yet.
    arrived: Vec<Vec<usize>>,
}

impl Pending {
    fn place(&self, buffer: usize) -> Place {
        Place::new(Space::Arena, self.buffers[buffer].offset)
    }

    fn only_mine(&self, buffer: usize) -> bool {
        self.buffers[buffer].holders == 1 && self.buffers[buffer].reader.is_none()
    }

    fn hold(&mut self, buffer: usize) {
        self.buffers[buffer].holders += 1;
    }
}

impl Lower<'_> {
    /// Puts the way back after the way forward. `d`: the gradient of the output.
    pub(super) fn backward(&mut self, d: usize) {
        let nodes = self.network.nodes().len();
        let mut pending = Pending { buffers: Vec::new(), arrived: vec![Vec::new(); nodes] };
        let out = self.network.output().0;
        pending.buffers.push(Buffer {
            offset: d,
            bytes: self.bytes(out),
            holders: 1,
            reader: None,
        });
        pending.arrived[out].push(0);
        for unit in self.units.clone().iter().rev() {
            match unit {
                Unit::Norm(unit) => self.norm_backward(&mut pending, unit),
                Unit::Plain(at) => self.plain_backward(&mut pending, *at),
                Unit::Join(unit) => self.join_backward(&mut pending, unit),
            }
        }
        if let Some(last) = self.filters.checked_sub(1) {
            self.program.training.push(Step::Join(last));
        }
    }

    /// Whether the gradient of a node's value leads to anything that is trained.
    fn wants(&self, node: usize) -> bool {
        self.network.wants_slope(NodeId(node))
    }

    fn fresh(&mut self, pending: &mut Pending, node: usize) -> usize {
        let bytes = self.bytes(node);
        let offset = self.pool.take(bytes);
        pending.buffers.push(Buffer { offset, bytes, holders: 1, reader: None });
        pending.buffers.len() - 1
    }

    fn release(&mut self, pending: &mut Pending, buffer: usize) {
        let b = &mut pending.buffers[buffer];
        b.holders -= 1;
        if b.holders > 0 {
            return;
        }
        let Some(reader) = b.reader else {
            self.pool.give(b.offset, b.bytes);
            return;
        };
        self.held.push_back((reader, b.offset, b.bytes));
        if self.held.len() > UNDER_WAY
            && let Some((reader, offset, bytes)) = self.held.pop_front()
        {
            self.program.training.push(Step::Join(reader));
            self.pool.give(offset, bytes);
        }
    }

    /// Adds arrived gradients until at most `most` are left.
    fn gather(&mut self, pending: &mut Pending, node: usize, most: usize) -> Vec<usize> {
        let mut list = std::mem::take(&mut pending.arrived[node]);
        while list.len() > most {
            let (Some(b), Some(a)) = (list.pop(), list.pop()) else { break };
            let to = if pending.only_mine(a) { a } else { self.fresh(pending, node) };
            let places = [pending.place(a), pending.place(b), pending.place(to)];
            let args = places.map(Arg::At).to_vec();
            let step = self.each(self.len(node), "sum_two", &[], args, &[]);
            self.program.training.push(step);
            if to != a {
                self.release(pending, a);
            }
            self.release(pending, b);
            list.push(to);
        }
        list
    }

    fn plain_backward(&mut self, pending: &mut Pending, at: usize) {
        let node = &self.network.nodes()[at];
        let gathered = self.gather(pending, at, 1);
        let Some(&d) = gathered.first() else { return };
        let dy = pending.place(d);
        let from = node.inputs[0].0;
        let x = self.values[from];
        match node.op.family() {
            Family::Weights { weight, bias, window: Some(window) } => {
                if self.network.trains(weight) {
                    let dw = self.conv_gradient(weight, from);
                    let problem = self.problem(Direction::Filter, at, weight, window);
                    let x = if self.unfolds(weight, from) { self.kept[at] } else { x };
                    let flat = self.param(weight, Space::Gradient);
                    self.program.training.push(Step::Filter(problem, [x, dw, dy], flat));
                    pending.buffers[d].reader = Some(self.filters);
                    self.unpack_gradient(self.filters);
                    self.filters += 1;
                }
                self.bias_gradient(at, bias, dy);
                if self.wants(from) {
                    let w = self.conv_weight(weight, from);
                    let dx = self.fresh(pending, from);
                    let problem = self.problem(Direction::Data, at, weight, window);
                    let places = [pending.place(dx), w, dy];
                    self.program.training.push(Step::Conv(problem, places));
                    pending.arrived[from].push(dx);
                }
            }
            Family::Weights { weight, bias, window: None } => {
                if self.network.trains(weight) {
                    let dw = self.param(weight, Space::Gradient);
                    let places = [x, dy, dw];
                    let product = self.product(Direction::Filter, from, at, true, places);
                    self.program.training.push(Step::Product(product, places));
                }
                self.bias_gradient(at, bias, dy);
                if self.wants(from) {
                    let dx = self.fresh(pending, from);
                    let places = [self.flat_weight(weight), dy, pending.place(dx)];
                    let product = self.product(Direction::Data, from, at, false, places);
                    self.program.training.push(Step::Product(product, places));
                    pending.arrived[from].push(dx);
                }
            }
            Family::Sum => {
                for input in &node.inputs {
                    if self.wants(input.0) {
                        pending.hold(d);
                        pending.arrived[input.0].push(d);
                    }
                }
            }
            Family::Curve(curve) if self.wants(from) => {
                let dx = if pending.only_mine(d) { d } else { self.fresh(pending, from) };
                let places = [self.values[at], dy, pending.place(dx)];
                let args = places.map(Arg::At).to_vec();
                let more = curve_define(curve);
                let step = self.each(self.len(at), "curve_backward", more, args, &[]);
                self.program.training.push(step);
                if dx == d {
                    pending.hold(d);
                }
                pending.arrived[from].push(dx);
            }
            Family::Pool(pool) if self.wants(from) => {
                let dx = self.fresh(pending, from);
                self.pool_backward(at, pool.kernels(), [dy, pending.place(dx)]);
                pending.arrived[from].push(dx);
            }
            Family::List(..) if self.wants(from) => {
                let dx = self.fresh(pending, from);
                let map = self.channel_map(at, true);
                let step = self.choose(map, at, [at, from], [dy, pending.place(dx)]);
                self.program.training.push(step);
                pending.arrived[from].push(dx);
            }
            Family::Scales { .. } => {
                let dx = if !self.wants(from) {
                    None
                } else if pending.only_mine(d) {
                    Some(d)
                } else {
                    Some(self.fresh(pending, from))
                };
                self.vary_backward(at, dy, dx.map(|dx| pending.place(dx)));
                if let Some(dx) = dx {
                    if dx == d {
                        pending.hold(d);
                    }
                    pending.arrived[from].push(dx);
                }
            }
            // Neither the input nor what is frozen up to here wants a gradient; norms have units of
            // their own.
            Family::Input
            | Family::Norm { .. }
            | Family::Pool(_)
            | Family::Curve(_)
            | Family::List(..) => {}
        }
        self.release(pending, d);
    }

    fn join_backward(&mut self, pending: &mut Pending, unit: &Join) {
        let list = self.gather(pending, unit.out, 2);
        let Some(&d) = list.first() else { return };
        let d2 = list.get(1).copied();
        let from = self.network.nodes()[unit.spread].inputs[0].0;
        let g = match d2 {
            _ if pending.only_mine(d) => d,
            Some(d2) if pending.only_mine(d2) => d2,
            _ => self.fresh(pending, unit.out),
        };
        let dx = self.fresh(pending, from);
        let map = self.channel_map(unit.spread, false);
        let mut more = Vec::new();
        more.extend(unit.relu.then_some("RELU"));
        more.extend(d2.map(|_| "TWO"));
        let places = [
            pending.place(d),
            d2.map_or(Place::NOTHING, |b| pending.place(b)),
            self.values[unit.out],
            pending.place(g),
            pending.place(dx),
            map,
        ];
        let args = places.map(Arg::At).to_vec();
        let widths = [from, unit.out].map(|node| self.channels(node));
        let step = self.by_channel("join_backward", &more, (unit.out, widths), args);
        self.program.training.push(step);
        for buffer in list.into_iter().filter(|buffer| *buffer != g) {
            self.release(pending, buffer);
        }
        if self.wants(from) {
            pending.arrived[from].push(dx);
        } else {
            self.release(pending, dx);
        }
        if self.wants(unit.other) {
            pending.arrived[unit.other].push(g);
        } else {
            self.release(pending, g);
        }
    }

    fn bias_gradient(&mut self, at: usize, bias: Option<usize>, dy: Place) {
        let Some(bias) = bias.filter(|bias| self.network.trains(*bias)) else { return };
        let args = vec![
            Arg::At(dy),
            Arg::At(Place::new(Space::Scratch, 0)),
            Arg::At(Place::new(Space::Counters, 0)),
            Arg::At(self.param(bias, Space::Gradient)),
        ];
        let more = ["K_bias_gradient"];
        let step = self.tiled(Which::Reduction, at, "bias_gradient", &more, args, &[]);
        self.program.training.push(step);
    }

    fn norm_backward(&mut self, pending: &mut Pending, unit: &Norm) {
        let list = self.gather(pending, unit.out, 2);
        let Some(&d) = list.first() else { return };
        let d2 = list.get(1).copied();
        let cut = match (unit.relu, unit.other) {
            (false, _) => "CUT=0",
            (true, Other::None) => "CUT=1",
            (true, _) => "CUT=2",
        };
        // What has fewer channels than the sum gets a buffer of its own size.
        let part = match unit.other {
            Other::Part(spread) => Some(self.network.nodes()[spread].inputs[0].0),
            _ => None,
        };
        let part = part.filter(|from| self.wants(*from));
        let to_part = part.map(|from| self.fresh(pending, from));
        // The gradient behind the cut is written where a second reader wants it, or where two
        // gradients would be read twice.
        let for_other = matches!(unit.other, Other::Value(_) | Other::Norm(_)) && unit.relu;
        let write = part.is_none() && (d2.is_some() || for_other);
        let g = match (write, d2) {
            (false, _) => d,
            (true, _) if pending.only_mine(d) => d,
            (true, Some(d2)) if pending.only_mine(d2) => d2,
            (true, _) => self.fresh(pending, unit.out),
        };
        let mut more = vec![cut];
        if d2.is_some() {
            more.push("TWO");
        }
        if write || part.is_some() {
            more.push("WRITE");
        }
        if part.is_some() {
            more.push("PART");
        }
        let first = self.first_normed(unit);
        if first.is_some() {
            more.push("FROM");
        }
        let out = to_part.or(write.then_some(g));
        let arrives = Arrives {
            at: unit.out,
            d: pending.place(d),
            d2: d2.map_or(Place::NOTHING, |b| pending.place(b)),
            mask: self.kept[unit.out],
            out: out.map_or(Place::NOTHING, |b| pending.place(b)),
            part: part.map(|from| self.channels(from)),
            first,
        };
        if let (Some(from), Some(buffer)) = (part, to_part) {
            pending.arrived[from].push(buffer);
        }
        match unit.other {
            Other::Value(v) if self.wants(v) => {
                pending.hold(g);
                pending.arrived[v].push(g);
            }
            Other::Norm(n) if self.wants(n) => pending.hold(g),
            Other::None | Other::Value(_) | Other::Norm(_) | Other::Part(_) => {}
        }
        // `g` stands for all that arrived; what it replaces is read by this norm and nobody after
        // it.
        let replaced: Vec<usize> = list.into_iter().filter(|buffer| *buffer != g).collect();
        if write || part.is_some() || self.wants(unit.node) {
            self.norm_gradient(pending, unit.node, g, &more, arrives);
        } else {
            self.release(pending, g);
        }
        for buffer in replaced {
            self.release(pending, buffer);
        }
        if let Other::Norm(n) = unit.other
            && self.wants(n)
        {
            let place = pending.place(g);
            let [d2, mask, out] = [Place::NOTHING; 3];
            let arrives = Arrives { at: n, d: place, d2, mask, out, part: None, first: None };
            self.norm_gradient(pending, n, g, &["CUT=0"], arrives);
        }
    }

    /// Gradients of a norm's scale, shift and, where it is wanted, of its input; takes over the
    /// caller's hold on `g`.
    fn norm_gradient(
        &mut self,
        pending: &mut Pending,
        norm: usize,
        g: usize,
        more: &[&'static str],
        arrives: Arrives,
    ) {
        let from = self.network.nodes()[norm].inputs[0].0;
        let wanted = self.wants(from);
        if !wanted && arrives.first.is_none() {
            self.norm_reduce(norm, more, arrives);
            self.release(pending, g);
            return;
        }
        // A gradient that is already there is added on the way.
        let extra = match pending.arrived[from][..] {
            [one] => Some(one),
            _ => None,
        };
        if extra.is_some() {
            pending.arrived[from].clear();
        }
        let to = match extra {
            // It has other channels than what arrives, or keeps some of it until all is summed.
            _ if arrives.first.is_some() || arrives.part.is_some() => self.fresh(pending, from),
            _ if pending.only_mine(g) => g,
            Some(extra) if pending.only_mine(extra) => extra,
            _ => self.fresh(pending, from),
        };
        let added = extra.map_or(Place::NOTHING, |b| pending.place(b));
        let dx = pending.place(to);
        let step =
            self.norm_whole_gradient(norm, more, arrives, [added, dx]).unwrap_or_else(|| {
                self.norm_reduce(norm, more, arrives);
                self.norm_dx(norm, more, arrives, [added, dx])
            });
        self.program.training.push(step);
        if to != g {
            self.release(pending, g);
        }
        if let Some(extra) = extra.filter(|e| *e != to) {
            self.release(pending, extra);
        }
        if wanted {
            pending.arrived[from].push(to);
        } else {
            self.release(pending, to);
        }
    }

    /// Sums and the gradient of the input in one kernel.
    fn norm_whole_gradient(
        &mut self,
        norm: usize,
        more: &[&'static str],
        arrives: Arrives,
        [added, dx]: [Place; 2],
    ) -> Option<Step> {
        let node = &self.network.nodes()[norm];
        let Op::BatchNorm { scale, shift, .. } = node.op else { return None };
        let args = [
            self.values[node.inputs[0].0],
            arrives.d,
            arrives.d2,
            arrives.mask,
            self.saved[norm],
            Place::new(Space::Scratch, 0),
            Place::new(Space::Counters, 0),
            arrives.out,
            self.param(scale, Space::Gradient),
            self.param(shift, Space::Gradient),
            added,
            dx,
        ];
        let mut more = [&["K_norm_backward"], more].concat();
        if added != Place::NOTHING {
            more.push("EXTRA");
        }
        self.whole(arrives.at, "norm_backward", &more, args.map(Arg::At).to_vec(), &arrives.last())
    }

    fn norm_reduce(&mut self, norm: usize, more: &[&'static str], arrives: Arrives) {
        let node = &self.network.nodes()[norm];
        let Op::BatchNorm { scale, shift, .. } = node.op else { return };
        let args = [
            self.values[node.inputs[0].0],
            arrives.d,
            arrives.d2,
            arrives.mask,
            self.saved[norm],
            Place::new(Space::Scratch, 0),
            Place::new(Space::Counters, 0),
            arrives.out,
            self.param(scale, Space::Gradient),
            self.param(shift, Space::Gradient),
        ];
        let more = [&["K_norm_reduce"], more].concat();
        let args = args.map(Arg::At).to_vec();
        let last = arrives.last();
        let step = self.tiled(Which::Reduction, norm, "norm_reduce", &more, args, &last);
        self.program.training.push(step);
    }

    fn norm_dx(
        &mut self,
        norm: usize,
        more: &[&'static str],
        arrives: Arrives,
        [added, dx]: [Place; 2],
    ) -> Step {
        // What the sums have written is cut and added up already.
        let written = arrives.out != Place::NOTHING;
        let (d, mask) =
            if written { (arrives.out, Place::NOTHING) } else { (arrives.d, arrives.mask) };
        let cut: &[&str] = if written { &["CUT=0"] } else { more };
        let mut more = [&["K_norm_dx"], cut].concat();
        if added != Place::NOTHING {
            more.push("EXTRA");
        }
        let x = self.values[self.network.nodes()[norm].inputs[0].0];
        let args = [x, d, Place::NOTHING, mask, self.saved[norm], added, dx];
        self.tiled(Which::Pass, norm, "norm_dx", &more, args.map(Arg::At).to_vec(), &[])
    }
}
