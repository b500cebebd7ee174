//! The concentration rule: channels whose weights all lie close together are pruned.
//!
//! The mask of a layer is a product: a weight is kept where both its input channel and its output
//! channel are. What follows from a dead output channel (bias, batch norm) is read off the network.
//! `docs/pruning.md` states the rules and their reasons.

use rayon::prelude::*;
use thinfer_engine::{Family, Network, vectorize};

use super::groups::{TASK, output_layer};
use super::{Goal, KEEP, Rule};

/// The channels of every layer of a network, and what hangs on them.
#[derive(Clone, Debug, PartialEq)]
pub struct Channels {
    rule: Rule,
    layers: Vec<Layer>,
    norms: Vec<Norm>,
    keep_norm: bool,
    /// Layers whose outputs are added to each other, channel by channel; only where there are
    /// several.
    streams: Vec<Vec<usize>>,
    /// Channels of a layer go so many at a time.
    multiple: usize,
    /// Parameters of the network, pruned or not.
    parameters: usize,
}

/// A convolution, or a linear layer as a convolution over one pixel.
#[derive(Clone, Debug, PartialEq)]
struct Layer {
    start: usize,
    outputs: usize,
    positions: usize,
    inputs: usize,
    /// Channels of what it reads; a linear layer has one input for each pixel of each of them.
    channels: usize,
    bias: Option<usize>,
    reads: Sources,
    readers: Vec<usize>,
    /// How often each weight is used for an image.
    uses: usize,
    /// What its ranges are multiplied by before they are compared.
    scale: f32,
    /// The layer that gives the network's output is never pruned.
    prunable: bool,
}

/// A batch norm: its first scale, its first shift, and whose channels it scales.
#[derive(Clone, Debug, PartialEq)]
struct Norm {
    scale: usize,
    shift: usize,
    channels: usize,
    reads: Sources,
}

/// Where the channels of a node come from: channel c is a sum of channels c of these layers, and of
/// the data itself.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sources {
    data: bool,
    layers: Vec<usize>,
}

/// Which channels of a layer are kept.
#[derive(Clone, Debug, PartialEq)]
struct Live {
    inputs: Vec<bool>,
    outputs: Vec<bool>,
}

/// How far apart the weights of each channel of a layer lie.
struct Spans {
    inputs: Vec<f32>,
    outputs: Vec<f32>,
}

impl Layer {
    fn len(&self) -> usize {
        self.outputs * self.positions * self.inputs
    }

    fn all(&self) -> Live {
        Live { inputs: vec![true; self.inputs], outputs: vec![true; self.outputs] }
    }

    /// Whether it reads a channel, where these inputs are kept.
    fn reads_of(&self, inputs: &[bool], channel: usize) -> bool {
        (channel..self.inputs).step_by(self.channels).any(|input| inputs[input])
    }

    /// What the marks say. The mask is a product of channels, so one kept weight shows all of it.
    fn live(&self, marks: &[u8]) -> Live {
        if !self.prunable {
            return self.all();
        }
        let marks = &marks[self.start..self.start + self.len()];
        let kept = |at: usize| marks[at] & KEEP != 0;
        let Some(first) = marks.iter().position(|mark| mark & KEEP != 0) else {
            return Live { inputs: vec![false; self.inputs], outputs: vec![false; self.outputs] };
        };
        let row = self.positions * self.inputs;
        let (output, input) = (first / row, first % self.inputs);
        Live {
            inputs: (0..self.inputs).map(|i| kept(output * row + i)).collect(),
            outputs: (0..self.outputs).map(|o| kept(o * row + input)).collect(),
        }
    }

    /// Writes the product of `live` into the marks.
    fn write(&self, live: &Live, marks: &mut [u8]) {
        let keep: Vec<u8> = live.inputs.iter().map(|on| if *on { KEEP } else { 0 }).collect();
        let row = self.positions * self.inputs;
        let marks = &mut marks[self.start..self.start + self.len()];
        marks.par_chunks_mut(row).zip(&live.outputs).with_min_len(TASK.div_ceil(row)).for_each(
            |(marks, on)| {
                let among = if *on { KEEP } else { 0 };
                for marks in marks.chunks_exact_mut(self.inputs) {
                    vectorize(
                        #[inline(always)]
                        || {
                            for (mark, keep) in marks.iter_mut().zip(&keep) {
                                *mark = *mark & !KEEP | keep & among;
                            }
                        },
                    );
                }
            },
        );
    }
}

impl Sources {
    fn join(&mut self, other: &Sources) {
        self.data |= other.data;
        self.layers.extend(&other.layers);
        self.layers.sort_unstable();
        self.layers.dedup();
    }

    /// Whether anything that depends on the data is left in a channel.
    fn carries(&self, live: &[Live], channel: usize) -> bool {
        self.data || self.layers.iter().any(|&layer| live[layer].outputs[channel])
    }
}

impl Channels {
    /// The channels of `network` under the signed or the absolute range rule. With `keep_norm` a
    /// pruned channel keeps its bias and its batch norm.
    ///
    /// Deviation: in paper and program a pruned channel always keeps them, and both prune
    /// convolutions alone; here a hidden linear layer is a convolution over one pixel.
    pub fn new(network: &Network, rule: Rule, keep_norm: bool) -> Self {
        let params = network.params();
        let last = output_layer(network);
        let mut layers: Vec<Layer> = Vec::new();
        let mut norms = Vec::new();
        let mut sources: Vec<Sources> = Vec::new();
        for node in network.nodes() {
            let mut reads = Sources { data: node.op.family() == Family::Input, layers: Vec::new() };
            node.inputs.iter().for_each(|from| reads.join(&sources[from.0]));
            match node.op.family() {
                Family::Weights { weight, bias, .. } => {
                    let shape = &params[weight].shape;
                    let (outputs, inputs) = (shape[0], shape[shape.len() - 1]);
                    let number = layers.len();
                    reads.layers.iter().for_each(|&from| layers[from].readers.push(number));
                    layers.push(Layer {
                        start: params[weight].offset,
                        outputs,
                        positions: params[weight].len() / (outputs * inputs),
                        inputs,
                        channels: network.nodes()[node.inputs[0].0].shape.channels,
                        bias: bias.map(|b| params[b].offset),
                        reads,
                        readers: Vec::new(),
                        uses: node.shape.height * node.shape.width,
                        scale: 1.0,
                        prunable: last != Some(weight),
                    });
                    sources.push(Sources { data: false, layers: vec![number] });
                }
                Family::Norm { scale, shift, .. } => {
                    norms.push(Norm {
                        scale: params[scale].offset,
                        shift: params[shift].offset,
                        channels: node.shape.channels,
                        reads: reads.clone(),
                    });
                    sources.push(reads);
                }
                // None of these mixes the channels of different layers.
                Family::Input
                | Family::Pool(_)
                | Family::Curve(_)
                | Family::Sum
                | Family::List(..)
                | Family::Scales { .. } => sources.push(reads),
            }
        }
        let streams = streams(layers.iter().map(|layer| &layer.reads));
        let parameters = params.len();
        Self { rule, layers, norms, keep_norm, streams, multiple: 1, parameters }
    }

    /// The same channels, of which those of a layer go `multiple` at a time: what stays is filled
    /// up to a multiple with the widest of those below the threshold. A channel that nothing feeds
    /// or nothing reads is below any threshold, and so is one of a residual stream that is not
    /// among its widest, as many as the multiple that is nearest to those above the threshold.
    ///
    /// Deviation: neither paper nor program has this; a device computes with full multiples anyway.
    pub fn in_multiples_of(mut self, multiple: usize) -> Self {
        self.multiple = multiple.max(1);
        self
    }

    /// The same channels, with ranges weighed by what they cost: the range of a channel is compared
    /// with
    ///
    /// λ₂ · (u / ū)^exponent,
    ///
    /// where u is how often a weight of the layer is used for an image, and ū its mean over all
    /// weights that can be pruned.
    ///
    /// Deviation: in paper and program λ₂ is the same for all layers, which is exponent 0.
    pub fn weighed_by_work(mut self, exponent: f64) -> Self {
        let prunable = || self.layers.iter().filter(|layer| layer.prunable);
        let weights: usize = prunable().map(Layer::len).sum();
        let work: usize = prunable().map(|layer| layer.len() * layer.uses).sum();
        let mean = work as f64 / weights as f64;
        for layer in &mut self.layers {
            layer.scale = (mean / layer.uses as f64).powf(exponent) as f32;
        }
        self
    }

    /// Parameters that can be pruned at most, all but what keeps the network connected.
    pub fn prunable(&self) -> usize {
        let none: Vec<Live> = self
            .layers
            .iter()
            .map(|layer| Live {
                inputs: vec![!layer.prunable; layer.inputs],
                outputs: vec![!layer.prunable; layer.outputs],
            })
            .collect();
        self.pruned(&none)
    }

    /// One pruning step: the channels below the threshold that `goal` asks for lose their marks
    /// and, with `regrow`, the others get theirs back. Without it the mask only loses.
    pub fn prune(&self, weights: &[f32], goal: Goal, regrow: bool, marks: &mut [u8]) {
        let spans = self.spans(weights);
        let present: Vec<Live> = self.layers.iter().map(|layer| layer.live(marks)).collect();
        let before =
            if regrow { self.layers.iter().map(Layer::all).collect() } else { present.clone() };
        let threshold = match goal {
            Goal::Threshold(threshold) => threshold,
            Goal::Share(share) => self.threshold(&spans, &before, share),
        };
        let now = self.thin(&spans, &before, threshold);
        for ((layer, present), now) in self.layers.iter().zip(&present).zip(&now) {
            if layer.prunable && present != now {
                layer.write(now, marks);
            }
        }
        if self.keep_norm {
            return;
        }
        let mut set =
            |at: usize, on: bool| marks[at] = marks[at] & !KEEP | if on { KEEP } else { 0 };
        for (layer, now) in self.layers.iter().zip(&now) {
            if let (Some(bias), true) = (layer.bias, layer.prunable) {
                now.outputs.iter().enumerate().for_each(|(o, on)| set(bias + o, *on));
            }
        }
        for norm in &self.norms {
            for channel in 0..norm.channels {
                let on = norm.reads.carries(&now, channel);
                set(norm.scale + channel, on);
                set(norm.shift + channel, on);
            }
        }
    }

    /// The narrowest channel that is kept: no smaller threshold would prune anything. Layers down
    /// to one channel do not count, since that one is kept whatever its weights.
    pub fn narrowest(&self, weights: &[f32], marks: &[u8]) -> Option<f64> {
        let spans = self.spans(weights);
        let mut narrowest: Option<f32> = None;
        for (layer, spans) in self.layers.iter().zip(&spans).filter(|(layer, _)| layer.prunable) {
            let live = layer.live(marks);
            for (spans, live) in [(&spans.inputs, &live.inputs), (&spans.outputs, &live.outputs)] {
                if live.iter().filter(|on| **on).count() > 1 {
                    let kept = spans.iter().zip(live).filter(|(_, on)| **on).map(|(s, _)| *s);
                    narrowest = kept.chain(narrowest).reduce(f32::min);
                }
            }
        }
        narrowest.map(f64::from)
    }

    /// max w − min w (or of |w|) over each channel of each layer that can be pruned.
    fn spans(&self, weights: &[f32]) -> Vec<Spans> {
        let mut tasks = Vec::new();
        for (number, layer) in self.layers.iter().enumerate().filter(|(_, layer)| layer.prunable) {
            let block = TASK.div_ceil(layer.positions * layer.inputs);
            let starts = (0..layer.outputs).step_by(block);
            tasks.extend(starts.map(|o| (number, o..(o + block).min(layer.outputs))));
        }
        let absolute = self.rule == Rule::AbsoluteRange;
        let parts: Vec<Extremes> = tasks
            .par_iter()
            .map(|(number, outputs)| {
                let layer = &self.layers[*number];
                let row = layer.positions * layer.inputs;
                let start = layer.start + outputs.start * row;
                let weights = &weights[start..start + outputs.len() * row];
                if absolute {
                    extremes(weights, row, layer.inputs, f32::abs)
                } else {
                    extremes(weights, row, layer.inputs, |w| w)
                }
            })
            .collect();
        let mut spans: Vec<Spans> =
            self.layers.iter().map(|_| Spans { inputs: Vec::new(), outputs: Vec::new() }).collect();
        let mut lows: Vec<Vec<f32>> = vec![Vec::new(); self.layers.len()];
        for ((number, _), part) in tasks.iter().zip(parts) {
            let (spans, low) = (&mut spans[*number], &mut lows[*number]);
            spans.outputs.extend(part.outputs);
            if low.is_empty() {
                (spans.inputs, *low) = (part.high, part.low);
            } else {
                spans.inputs.iter_mut().zip(part.high).for_each(|(a, b)| *a = a.max(b));
                low.iter_mut().zip(part.low).for_each(|(a, b)| *a = a.min(b));
            }
        }
        for ((spans, low), layer) in spans.iter_mut().zip(lows).zip(&self.layers) {
            spans.inputs.iter_mut().zip(low).for_each(|(high, low)| *high -= low);
            let all = spans.inputs.iter_mut().chain(&mut spans.outputs);
            all.for_each(|span| *span *= layer.scale);
        }
        spans
    }

    /// The channels that stay at a threshold, out of those that were kept `before`.
    ///
    /// Layers are visited in the order of the network. Each keeps an input channel that carries
    /// data and an output channel, and whatever a later layer still reads of it does not end with
    /// it: so the output always depends on the data. Where the threshold would end that, the widest
    /// channel that saves it stays.
    ///
    /// Deviation: neither paper nor program keeps a layer from dying.
    fn thin(&self, spans: &[Spans], before: &[Live], threshold: f64) -> Vec<Live> {
        let mut now = before.to_vec();
        if threshold <= 0.0 {
            return now;
        }
        let outside = self.outside(spans, before, threshold);
        for (number, layer) in self.layers.iter().enumerate() {
            if !layer.prunable {
                continue;
            }
            let (spans, before_this) = (&spans[number], &before[number]);
            let fed = |input: usize| layer.reads.carries(&now, input % layer.channels);
            let mut inputs = self.wide(&spans.inputs, &before_this.inputs, threshold, fed);
            if !(0..layer.inputs).any(|input| inputs[input] && fed(input)) {
                let could = |input: usize| before_this.inputs[input] && fed(input);
                if let Some(input) = widest(&spans.inputs, could) {
                    inputs[input] = true;
                }
            }
            let read = |output: usize| {
                let mut readers = layer.readers.iter();
                // Without readers it is part of the network's output.
                (layer.readers.is_empty()
                    || readers.any(|&r| self.layers[r].reads_of(&before[r].inputs, output)))
                    && outside[number].get(output) != Some(&true)
            };
            let outputs = self.wide(&spans.outputs, &before_this.outputs, threshold, read);
            now[number] = Live { inputs, outputs };
            for &reader in &layer.readers {
                let (reader, reads) = (&self.layers[reader], &before[reader].inputs);
                let fed = |input: usize| reader.reads.carries(&now, input % reader.channels);
                if (0..reader.inputs).any(|input| reads[input] && fed(input)) {
                    continue;
                }
                let could =
                    |output: usize| before_this.outputs[output] && reader.reads_of(reads, output);
                if let Some(output) = widest(&spans.outputs, could) {
                    now[number].outputs[output] = true;
                }
            }
            if !now[number].outputs.contains(&true)
                && let Some(output) = widest(&spans.outputs, |o| before_this.outputs[o])
            {
                now[number].outputs[output] = true;
            }
        }
        now
    }

    /// Of one side of a layer, the channels that stay at a threshold, out of those that were kept
    /// `before`. Where they go in multiples, those that are not `used` go as well.
    fn wide(
        &self,
        spans: &[f32],
        before: &[bool],
        threshold: f64,
        used: impl Fn(usize) -> bool,
    ) -> Vec<bool> {
        let wide = |at: usize| f64::from(spans[at]) >= threshold;
        if self.multiple == 1 {
            return (0..spans.len()).map(|at| before[at] && wide(at)).collect();
        }
        let mut live: Vec<usize> = (0..spans.len()).filter(|at| before[*at] && used(*at)).collect();
        let count = live.iter().filter(|at| wide(**at)).count().next_multiple_of(self.multiple);
        live.sort_by(|&a, &b| spans[b].total_cmp(&spans[a]));
        let mut kept = vec![false; spans.len()];
        live.iter().take(count).for_each(|at| kept[*at] = true);
        kept
    }

    /// For each layer of a residual stream, the channels that the stream is to lose: it keeps the
    /// widest, as many as the multiple nearest to those that are wide enough in one of its layers.
    fn outside(&self, spans: &[Spans], before: &[Live], threshold: f64) -> Vec<Vec<bool>> {
        let mut outside = vec![Vec::new(); self.layers.len()];
        if self.multiple == 1 {
            return outside;
        }
        for stream in &self.streams {
            let channels = self.layers[stream[0]].outputs;
            let widest = |c: usize| {
                let live = stream.iter().filter(|layer| before[**layer].outputs[c]);
                live.map(|layer| spans[*layer].outputs[c]).reduce(f32::max)
            };
            let mut live: Vec<(usize, f32)> =
                (0..channels).filter_map(|c| Some((c, widest(c)?))).collect();
            let wide = live.iter().filter(|(_, span)| f64::from(*span) >= threshold).count();
            // Half a multiple is rounded down.
            let count = (wide + (self.multiple - 1) / 2) / self.multiple * self.multiple;
            live.sort_by(|a, b| b.1.total_cmp(&a.1));
            let mut lost = vec![false; channels];
            live.iter().skip(count.max(self.multiple)).for_each(|(c, _)| lost[*c] = true);
            stream.iter().for_each(|layer| outside[*layer].clone_from(&lost));
        }
        outside
    }

    /// The smallest threshold at which at least `share` of all parameters are pruned, or the
    /// largest that matters where none reaches it.
    ///
    /// Between two neighbouring spans nothing changes, so it is searched among them, each time with
    /// the exact count of what would be pruned.
    fn threshold(&self, spans: &[Spans], before: &[Live], share: f64) -> f64 {
        let wanted = (share * self.parameters as f64).ceil() as usize;
        if self.pruned(before) >= wanted {
            return 0.0;
        }
        let mut steps = Vec::new();
        for (spans, live) in spans.iter().zip(before) {
            let pairs = spans.inputs.iter().zip(&live.inputs);
            let pairs = pairs.chain(spans.outputs.iter().zip(&live.outputs));
            steps.extend(pairs.filter(|(_, live)| **live).map(|(span, _)| *span));
        }
        steps.sort_unstable_by(f32::total_cmp);
        steps.dedup();
        let above = |span: &f32| f64::from(span.next_up());
        let short = |span: &f32| self.pruned(&self.thin(spans, before, above(span))) < wanted;
        let first = steps.partition_point(short);
        steps.get(first).or(steps.last()).map_or(0.0, above)
    }

    /// Parameters that are pruned where these channels are kept.
    fn pruned(&self, live: &[Live]) -> usize {
        let count = |on: &[bool]| on.iter().filter(|on| **on).count();
        let mut pruned = 0;
        for (layer, live) in self.layers.iter().zip(live) {
            let outputs = count(&live.outputs);
            pruned += layer.len() - outputs * layer.positions * count(&live.inputs);
            if layer.bias.is_some() && !self.keep_norm {
                pruned += layer.outputs - outputs;
            }
        }
        if !self.keep_norm {
            for norm in &self.norms {
                pruned += 2 * (0..norm.channels).filter(|c| !norm.reads.carries(live, *c)).count();
            }
        }
        pruned
    }
}

/// The layers whose outputs are added to each other, of what all layers read; none of them where
/// the data is added as well.
fn streams<'a>(reads: impl Iterator<Item = &'a Sources>) -> Vec<Vec<usize>> {
    let mut streams: Vec<Sources> = Vec::new();
    for reads in reads.filter(|reads| reads.layers.len() > 1) {
        let mut joined = reads.clone();
        streams.retain(|stream| {
            let apart = stream.layers.iter().all(|layer| !reads.layers.contains(layer));
            if !apart {
                joined.join(stream);
            }
            apart
        });
        streams.push(joined);
    }
    streams.into_iter().filter(|stream| !stream.data).map(|stream| stream.layers).collect()
}

/// The widest of the channels that `could` names; the first of equals.
fn widest(spans: &[f32], could: impl Fn(usize) -> bool) -> Option<usize> {
    let mut best: Option<usize> = None;
    for at in (0..spans.len()).filter(|at| could(*at)) {
        if best.is_none_or(|best| spans[at] > spans[best]) {
            best = Some(at);
        }
    }
    best
}

/// Extremes over some outputs of a layer: of each input, and the difference for each output.
struct Extremes {
    low: Vec<f32>,
    high: Vec<f32>,
    outputs: Vec<f32>,
}

fn extremes(weights: &[f32], row: usize, inputs: usize, of: impl Fn(f32) -> f32) -> Extremes {
    let mut low = vec![f32::INFINITY; inputs];
    let mut high = vec![f32::NEG_INFINITY; inputs];
    let mut row_low = vec![0.0; inputs];
    let mut row_high = vec![0.0; inputs];
    let mut outputs = Vec::with_capacity(weights.len() / row);
    for row in weights.chunks_exact(row) {
        row_low.fill(f32::INFINITY);
        row_high.fill(f32::NEG_INFINITY);
        for weights in row.chunks_exact(inputs) {
            vectorize(
                #[inline(always)]
                || {
                    let pairs = row_low.iter_mut().zip(&mut row_high).zip(weights);
                    for ((low, high), w) in pairs {
                        let w = of(*w);
                        *low = if w < *low { w } else { *low };
                        *high = if w > *high { w } else { *high };
                    }
                },
            );
        }
        low.iter_mut().zip(&row_low).for_each(|(a, b)| *a = a.min(*b));
        high.iter_mut().zip(&row_high).for_each(|(a, b)| *a = a.max(*b));
        let least = row_low.iter().copied().fold(f32::INFINITY, f32::min);
        let most = row_high.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        outputs.push(most - least);
    }
    Extremes { low, high, outputs }
}
