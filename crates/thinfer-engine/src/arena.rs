use rayon::prelude::*;

use crate::error::EngineError;
use crate::network::Network;
use crate::param::{ParamTable, Role};
use crate::vectorize::vectorize;

/// Elements a task works on; small enough for the first-level cache with every buffer beside it.
const CHUNK: usize = 4096;
/// Below this many elements one thread is done before another one has woken up.
const WORTH_SHARING: usize = 16384;

/// The flat buffers of one chain: weights, gradient, a method's state, masks.
///
/// All of them are parallel: element `i` belongs to the same parameter everywhere, as the
/// [`ParamTable`] says.
#[derive(Clone, Debug)]
pub struct Arena {
    table: ParamTable,
    weights: Vec<f32>,
    forward: Option<Vec<f32>>,
    gradient: Vec<f32>,
    state: Vec<Vec<f32>>,
    numbers: Vec<f64>,
    marks: Vec<u8>,
    stats: Vec<f32>,
    origin: Option<Vec<u32>>,
    touched: bool,
    clipped: u64,
    record: Option<Vec<Call>>,
    recorded: usize,
}

/// A pass as a CUDA kernel: the text to compile, the function in it, and `NAME=value` definitions.
///
/// Every such kernel has one signature: weights, what the network reads where that is kept apart,
/// its bf16 copy, gradient, two state buffers, marks, length, a table of scalars with one entry a
/// step, the step, a factor on the gradient, and the numbers that key the noise where they are not
/// the weights' own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// CUDA C++.
    pub source: &'static str,
    /// The function's name.
    pub entry: &'static str,
    /// Definitions for the preprocessor.
    pub defines: &'static [&'static str],
}

/// A pass that was recorded instead of run.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// What it is on CUDA.
    pub kernel: Kernel,
    /// Its entry in the kernel's table of scalars.
    pub scalars: Vec<u32>,
    /// The limit that it wants kept.
    pub clip: Option<Clip>,
}

/// A limit on the length of the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clip {
    /// The largest norm that stays as it is.
    pub most: f64,
    /// The norm is taken over elements whose mark has one of these bits,
    pub among: u8,
    /// and none of these.
    pub except: u8,
}

/// One piece of all buffers, as a [`Pass`] sees it.
pub struct Chunk<'a> {
    /// Index of the first element in the flat buffers, for keyed noise.
    pub first: usize,
    /// The numbers that key the noise of these elements, where they are not their indices; empty
    /// otherwise.
    pub origin: &'a [u32],
    /// The weights that the method owns.
    pub weights: &'a mut [f32],
    /// What the network reads, where the method keeps it apart from `weights`; empty otherwise.
    pub forward: &'a mut [f32],
    /// The data gradient of the mean loss at the weights that the network read.
    pub gradient: &'a [f32],
    /// What the gradient is to be multiplied with: 1 unless the pass clips it.
    pub factor: f32,
    /// The method's own buffers, in the order in which it declared them.
    pub state: Vec<&'a mut [f32]>,
    /// One byte a weight; what its bits mean is the method's affair.
    pub marks: &'a [u8],
}

/// One pass over the flat buffers: element by element, no element reads another.
pub trait Pass: Sync {
    /// Works on one piece. Called for every piece exactly once, in any order and in parallel.
    fn apply(&self, chunk: Chunk<'_>);

    /// The limit on the gradient that this pass wants kept.
    fn clip(&self) -> Option<Clip> {
        None
    }

    /// The same pass on CUDA, with the numbers of this step.
    fn kernel(&self) -> Option<(Kernel, Vec<u32>)> {
        None
    }
}

impl Arena {
    /// Zeroed buffers for `network`, with `state_buffers` extra numbers a weight. Running
    /// variances begin at one.
    pub fn new(network: &Network, state_buffers: usize) -> Self {
        let mut arena = Self::for_table(network.params().clone(), state_buffers);
        arena.stats = vec![0.0; network.stats().len()];
        for param in network.stats().iter().filter(|p| p.role == Role::RunningVariance) {
            arena.stats[param.range()].fill(1.0);
        }
        arena
    }

    /// Zeroed buffers for a network that was cut out of a larger one. `origin` has, for each of its
    /// parameters' elements, the index in the larger one, which keys its noise; behind them may
    /// stand elements that no network reads but that a method still moves.
    pub fn part(network: &Network, origin: Vec<u32>, state_buffers: usize) -> Self {
        let stats = Self::new(network, 0).stats;
        let mut table = network.params().clone();
        if let rest @ 1.. = origin.len().saturating_sub(table.len()) {
            table.push("rest".into(), vec![rest], Role::Bias);
        }
        Self { stats, origin: Some(origin), ..Self::for_table(table, state_buffers) }
    }

    /// Where the elements lie in a larger arena, if they are a part of one.
    pub fn origin(&self) -> Option<&[u32]> {
        self.origin.as_deref()
    }

    /// Fills weights, marks and statistics of a part from the larger arena, and with `all` the
    /// method's state too; statistic i from `stats[i]`.
    pub fn take_from(&mut self, larger: &Arena, stats: &[u32], all: bool) {
        let Some(at) = &self.origin else { return };
        gather(&mut self.weights, &larger.weights, at);
        gather(&mut self.marks, &larger.marks, at);
        gather(&mut self.stats, &larger.stats, stats);
        if let (Some(to), Some(from)) = (&mut self.forward, &larger.forward) {
            gather(to, from, at);
        }
        if all {
            self.state.iter_mut().zip(&larger.state).for_each(|(to, from)| gather(to, from, at));
        }
    }

    /// Puts weights and statistics back to where [`Arena::take_from`] found them.
    pub fn give_weights(&self, larger: &mut Arena, stats: &[u32]) {
        let Some(at) = &self.origin else { return };
        scatter(&mut larger.weights, &self.weights, at);
        scatter(&mut larger.stats, &self.stats, stats);
    }

    /// Puts the method's state, and what the network reads where that is a copy, back to where
    /// [`Arena::take_from`] found them.
    pub fn give_state(&self, larger: &mut Arena) {
        let Some(at) = &self.origin else { return };
        larger.state.iter_mut().zip(&self.state).for_each(|(to, from)| scatter(to, from, at));
        if let (Some(to), Some(from)) = (&mut larger.forward, &self.forward) {
            scatter(to, from, at);
        }
    }

    /// Zeroed buffers for parameters that need no network, as the posterior checks use.
    pub fn for_table(table: ParamTable, state_buffers: usize) -> Self {
        let n = table.len();
        Self {
            table,
            weights: vec![0.0; n],
            forward: None,
            gradient: vec![0.0; n],
            state: vec![vec![0.0; n]; state_buffers],
            numbers: Vec::new(),
            marks: vec![0; n],
            touched: true,
            clipped: 0,
            record: None,
            recorded: 0,
            stats: Vec::new(),
            origin: None,
        }
    }

    /// Buffers for `n` unnamed parameters of one vector.
    pub fn flat(n: usize, state_buffers: usize) -> Self {
        let mut table = ParamTable::default();
        table.push("weights".into(), vec![n], Role::Bias);
        Self::for_table(table, state_buffers)
    }

    /// Gives the network its own copy of the weights, for methods that perturb or mask them.
    pub fn separate_forward(&mut self) {
        self.forward.get_or_insert_with(|| self.weights.clone());
    }

    /// Whether the network reads a copy of its own.
    pub fn has_forward(&self) -> bool {
        self.forward.is_some()
    }

    /// Where each parameter lies.
    pub fn table(&self) -> &ParamTable {
        &self.table
    }

    /// How many weights there are.
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// The weights that the method owns.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// The weights that the network reads.
    pub fn forward(&self) -> &[f32] {
        self.forward.as_deref().unwrap_or(&self.weights)
    }

    /// The gradient of the last step.
    pub fn gradient(&self) -> &[f32] {
        &self.gradient
    }

    /// A method's state buffer.
    pub fn state(&self, at: usize) -> &[f32] {
        &self.state[at]
    }

    /// How many state buffers the method declared.
    pub fn state_buffers(&self) -> usize {
        self.state.len()
    }

    /// What a method keeps in double precision, of any length.
    pub fn numbers(&self) -> &[f64] {
        &self.numbers
    }

    /// Replaces what a method keeps in double precision.
    pub fn set_numbers(&mut self, values: Vec<f64>) {
        self.numbers = values;
    }

    /// Takes what a method keeps in double precision, to be given back.
    pub fn take_numbers(&mut self) -> Vec<f64> {
        std::mem::take(&mut self.numbers)
    }

    /// One byte a weight.
    pub fn marks(&self) -> &[u8] {
        &self.marks
    }

    /// The weights that the method owns, beside the marks to change.
    pub fn weights_and_marks(&mut self) -> (&[f32], &mut [u8]) {
        self.touched = true;
        (&self.weights, &mut self.marks)
    }

    /// Running statistics of batch norms, which are kept but not trained.
    pub fn stats(&self) -> &[f32] {
        &self.stats
    }

    /// Weights and running statistics to write to, for what trains elsewhere.
    pub(crate) fn trained_mut(&mut self) -> (&mut [f32], &mut [f32]) {
        (&mut self.weights, &mut self.stats)
    }

    /// A state buffer to write to, for what trains elsewhere.
    pub(crate) fn state_mut(&mut self, at: usize) -> &mut [f32] {
        &mut self.state[at]
    }

    /// What the network reads where it has a copy of its own, to write to.
    pub(crate) fn forward_mut(&mut self) -> Option<&mut [f32]> {
        self.forward.as_deref_mut()
    }

    /// Replaces the running statistics.
    pub fn set_stats(&mut self, values: &[f32]) -> Result<(), EngineError> {
        copy("the running statistics", &mut self.stats, values)
    }

    /// Replaces the weights.
    pub fn set_weights(&mut self, values: &[f32]) -> Result<(), EngineError> {
        self.touched = true;
        copy("the weights", &mut self.weights, values)
    }

    /// Replaces what the network reads; makes the copy if there is none yet.
    pub fn set_forward(&mut self, values: &[f32]) -> Result<(), EngineError> {
        self.separate_forward();
        match &mut self.forward {
            Some(forward) => copy("the forward weights", forward, values),
            None => Ok(()),
        }
    }

    /// Replaces the gradient.
    pub fn set_gradient(&mut self, values: &[f32]) -> Result<(), EngineError> {
        copy("the gradient", &mut self.gradient, values)
    }

    /// Replaces a state buffer.
    pub fn set_state(&mut self, at: usize, values: &[f32]) -> Result<(), EngineError> {
        copy("a state buffer", &mut self.state[at], values)
    }

    /// The gradient and a state buffer, both to write to.
    pub fn gradient_and_state(&mut self, at: usize) -> (&mut [f32], &mut [f32]) {
        (&mut self.gradient, &mut self.state[at])
    }

    /// What the gradient is multiplied with in a pass that wants this limit kept.
    pub fn clip_factor(&self, clip: Option<Clip>) -> f32 {
        clip.map_or(1.0, |clip| clip_factor(&self.gradient, &self.marks, clip))
    }

    /// Replaces the marks.
    pub fn set_marks(&mut self, values: &[u8]) -> Result<(), EngineError> {
        self.touched = true;
        copy("the marks", &mut self.marks, values)
    }

    /// Whether weights or marks were changed here since this was last asked.
    pub fn take_touched(&mut self) -> bool {
        std::mem::take(&mut self.touched)
    }

    pub(crate) fn read_and_gradient(&mut self) -> (&[f32], &mut [f32], &mut [f32]) {
        let weights = self.forward.as_deref().unwrap_or(&self.weights);
        (weights, &mut self.stats, &mut self.gradient)
    }

    /// Runs a pass over all buffers, in parallel where they are long.
    pub fn run(&mut self, pass: &impl Pass) {
        if let Some(record) = &mut self.record {
            // A pass without a kernel leaves a gap, which `record` reports.
            let clip = pass.clip();
            record.extend(pass.kernel().map(|(kernel, scalars)| Call { kernel, scalars, clip }));
            self.recorded += 1;
            return;
        }
        self.touched = true;
        let clip = |clip| clip_factor(&self.gradient, &self.marks, clip);
        let factor = pass.clip().map_or(1.0, clip);
        self.clipped += u64::from(factor < 1.0);
        let n = self.weights.len();
        if n < WORTH_SHARING || rayon::current_num_threads() == 1 {
            let forward = self.forward.as_deref_mut().unwrap_or(&mut []);
            pass.apply(Chunk {
                first: 0,
                origin: self.origin.as_deref().unwrap_or_default(),
                weights: &mut self.weights,
                forward,
                gradient: &self.gradient,
                factor,
                state: self.state.iter_mut().map(Vec::as_mut_slice).collect(),
                marks: &self.marks,
            });
            return;
        }
        // Small buffers are cut in halves at least; a multiple of a noise tile, so that none is
        // made twice.
        let piece = (n / 2).next_multiple_of(128).min(CHUNK);
        let pieces = n.div_ceil(piece);
        let mut state: Vec<Vec<&mut [f32]>> = (0..pieces).map(|_| Vec::new()).collect();
        for buffer in &mut self.state {
            for (piece, part) in state.iter_mut().zip(buffer.chunks_mut(piece)) {
                piece.push(part);
            }
        }
        let mut forward: Vec<&mut [f32]> = match &mut self.forward {
            Some(buffer) => buffer.chunks_mut(piece).collect(),
            None => (0..pieces).map(|_| &mut [][..]).collect(),
        };
        let origins = self.origin.as_deref();
        self.weights
            .par_chunks_mut(piece)
            .zip(forward.par_iter_mut())
            .zip(self.gradient.par_chunks(piece))
            .zip(self.marks.par_chunks(piece))
            .zip(state.into_par_iter())
            .enumerate()
            .for_each(|(at, ((((weights, forward), gradient), marks), state))| {
                let first = at * piece;
                let origin = origins.map_or(&[][..], |all| &all[first..first + weights.len()]);
                let chunk =
                    Chunk { first, origin, weights, forward, gradient, factor, state, marks };
                pass.apply(chunk);
            });
    }

    /// What `work` would run, as CUDA calls. Nothing in the arena changes.
    pub fn record(&mut self, work: impl FnOnce(&mut Self)) -> Result<Vec<Call>, EngineError> {
        self.record = Some(Vec::new());
        self.recorded = 0;
        work(self);
        let calls = self.record.take().unwrap_or_default();
        if calls.len() == self.recorded {
            return Ok(calls);
        }
        Err(EngineError::Cuda {
            call: "a method's update".into(),
            problem: "has no CUDA kernel; run it with `--device cpu`".into(),
        })
    }

    /// How many passes had to shorten the gradient since the last call.
    pub fn take_clipped(&mut self) -> u64 {
        std::mem::take(&mut self.clipped)
    }

    /// Bytes of the method's own memory: weights, state and marks. Gradient and forward copy are
    /// work space that is not kept.
    pub fn method_bytes(&self) -> usize {
        4 * self.weights.len() * (1 + self.state.len()) + self.marks.len() + 8 * self.numbers.len()
    }

    /// Bytes of work space: the gradient and, where there is one, the forward copy.
    pub fn work_bytes(&self) -> usize {
        4 * self.weights.len() * (1 + usize::from(self.forward.is_some()))
    }
}

/// `min(1, most / |g|)`. The squares are summed in a fixed order, so the result does not depend on
/// threads.
fn clip_factor(gradient: &[f32], marks: &[u8], clip: Clip) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0.0f64; LANES];
    vectorize(
        #[inline(always)]
        || {
            for (gradient, marks) in gradient.chunks(LANES).zip(marks.chunks(LANES)) {
                for ((sum, g), mark) in sums.iter_mut().zip(gradient).zip(marks) {
                    let counts = mark & clip.among != 0 && mark & clip.except == 0;
                    let counted = if counts { f64::from(*g) } else { 0.0 };
                    *sum += counted * counted;
                }
            }
        },
    );
    let norm = sums.iter().sum::<f64>().sqrt();
    if norm > clip.most { (clip.most / norm) as f32 } else { 1.0 }
}

fn gather<T: Copy + Send + Sync>(to: &mut [T], from: &[T], at: &[u32]) {
    let some = |(to, at): (&mut [T], &[u32])| {
        to.iter_mut().zip(at).for_each(|(to, at)| *to = from[*at as usize]);
    };
    if at.len() <= WORTH_SHARING {
        some((to, at));
    } else {
        to.par_chunks_mut(WORTH_SHARING).zip(at.par_chunks(WORTH_SHARING)).for_each(some);
    }
}

/// The inverse of [`gather`]. Where places rise for long, both halves of them go to parts of `to`
/// that do not meet; short runs, as of channels that were put into another order, are done one
/// after the other.
fn scatter<T: Copy + Send + Sync>(to: &mut [T], mut from: &[T], at: &[u32]) {
    for rising in at.chunk_by(|a, b| a < b) {
        let (these, others) = from.split_at(rising.len());
        scatter_rising(to, 0, these, rising);
        from = others;
    }
}

/// `to` begins with place `first`.
fn scatter_rising<T: Copy + Send + Sync>(to: &mut [T], first: u32, from: &[T], at: &[u32]) {
    if at.len() <= WORTH_SHARING {
        from.iter().zip(at).for_each(|(from, at)| to[(*at - first) as usize] = *from);
        return;
    }
    let ((a, b), (from_a, from_b)) = (at.split_at(at.len() / 2), from.split_at(at.len() / 2));
    let (to_a, to_b) = to.split_at_mut((b[0] - first) as usize);
    rayon::join(
        || scatter_rising(to_a, first, from_a, a),
        || scatter_rising(to_b, b[0], from_b, b),
    );
}

fn copy<T: Copy>(what: &'static str, to: &mut [T], from: &[T]) -> Result<(), EngineError> {
    if to.len() != from.len() {
        return Err(EngineError::Size { what, got: from.len(), expected: to.len() });
    }
    to.copy_from_slice(from);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct AddIndex;
    impl Pass for AddIndex {
        fn apply(&self, chunk: Chunk<'_>) {
            for (i, w) in chunk.weights.iter_mut().enumerate() {
                *w += (chunk.first + i) as f32 + chunk.state[1][i];
            }
        }
    }

    #[test]
    fn a_pass_sees_every_element_once_for_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut arena = Arena::flat(50_000, 2);
            arena.set_state(1, &vec![0.5; 50_000]).unwrap();
            pool.install(|| arena.run(&AddIndex));
            assert!(arena.weights().iter().enumerate().all(|(i, w)| *w == i as f32 + 0.5));
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let mut arena = Arena::flat(4, 0);
        let got = arena.set_weights(&[1.0; 3]);
        assert_eq!(got, Err(EngineError::Size { what: "the weights", got: 3, expected: 4 }));
    }

    /// Large enough to be shared, rising but for two places, with gaps.
    #[test]
    fn what_is_gathered_is_scattered_to_where_it_was() {
        let places = |from: u32, to: u32| (from..to).filter(|i| i % 7 != 3);
        let at: Vec<u32> = places(0, 60_000)
            .chain(places(90_000, 200_000))
            .chain(places(60_000, 70_000))
            .collect();
        let from: Vec<f32> = (0..200_000).map(|i| i as f32).collect();
        let mut part = vec![0.0; at.len()];
        gather(&mut part, &from, &at);
        assert!(part.iter().zip(&at).all(|(value, at)| *value == *at as f32));
        let mut to = vec![-1.0; from.len()];
        scatter(&mut to, &part, &at);
        let mut want = vec![-1.0; from.len()];
        at.iter().for_each(|i| want[*i as usize] = *i as f32);
        assert_eq!(to, want);
    }
}
