//! EM-MCMC that writes down what its threshold was compared with, for the path over thresholds.

use std::sync::{Arc, Mutex, PoisonError};

use thinfer_core::methods::{BatchNoise, Method, Tick, Vitals};
use thinfer_core::prune::{Course, KEEP};
use thinfer_core::train::ChainSpec;
use thinfer_data::Result;
use thinfer_engine::noise::Key;
use thinfer_engine::{Arena, Param};
use thinfer_run::config::Config;
use thinfer_run::experiment::freeze_after_epochs;

/// A method that does what the one under it does. Before every epoch in which that one may prune,
/// it notes the mean square of the weights that read each input: the number that is compared with
/// `prune.hard_threshold`.
pub(super) struct Scored {
    method: Arc<dyn Method>,
    /// The weights of the first layer.
    first: Option<Param>,
    /// The epochs with a comparison: the first, and the one after the last.
    epochs: (usize, usize),
    /// Whether pruned weights live on under the mask, and go on being compared.
    regrow: bool,
    scores: Mutex<Vec<f64>>,
}

impl Scored {
    /// Puts itself between the chain and its method.
    pub(super) fn watch(config: &Config, spec: &mut ChainSpec) -> Result<Arc<Self>> {
        let prune = &config.prune;
        let cycles = spec.schedules.step_size.cycles(spec.clock.epochs);
        let end = freeze_after_epochs(prune, &cycles)?.map_or(usize::MAX, |last| last + 1);
        let watching = Arc::new(Self {
            method: Arc::clone(&spec.method),
            first: spec.network.first_weight().cloned(),
            epochs: (prune.warm_up_epochs + 1, end),
            regrow: prune.regrow,
            scores: Mutex::new(vec![0.0; spec.network.input_len()]),
        });
        spec.method = watching.clone();
        Ok(watching)
    }

    /// The mean square of each input when it was compared for the last time. Without feedback that
    /// of a pruned input is the one with which it went.
    pub(super) fn scores(&self) -> Vec<f64> {
        self.scores.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, arena: &Arena, epoch: usize) {
        let Some(first) = &self.first else { return };
        if !(self.epochs.0..self.epochs.1).contains(&epoch) {
            return;
        }
        let mut scores = self.scores.lock().unwrap_or_else(PoisonError::into_inner);
        let columns = scores.len();
        let mut sums = vec![(0.0, false); columns];
        let weights = arena.weights()[first.range()].iter().zip(&arena.marks()[first.range()]);
        for (at, (weight, mark)) in weights.enumerate() {
            let (sum, live) = &mut sums[at % columns];
            *sum += f64::from(*weight).powi(2);
            *live |= self.regrow || mark & KEEP != 0;
        }
        let units = (first.len() / columns.max(1)).max(1) as f64;
        for (score, (sum, _)) in scores.iter_mut().zip(sums).filter(|(_, (_, live))| *live) {
            *score = sum / units;
        }
    }
}

impl Method for Scored {
    fn state_buffers(&self) -> usize {
        self.method.state_buffers()
    }

    fn start(&self, arena: &mut Arena, key: Key) -> Result<()> {
        self.method.start(arena, key)
    }

    fn materialize(&self, arena: &mut Arena, tick: Tick) {
        self.method.materialize(arena, tick);
    }

    fn update(&self, arena: &mut Arena, tick: Tick) {
        self.method.update(arena, tick);
    }

    fn epoch(&self, arena: &mut Arena, tick: Tick) {
        self.note(arena, tick.epoch);
        self.method.epoch(arena, tick);
    }

    fn recorded(&self, arena: &mut Arena) {
        self.method.recorded(arena);
    }

    fn reads_state(&self, epoch: usize) -> bool {
        self.method.reads_state(epoch)
    }

    fn writes_state(&self, epoch: usize) -> bool {
        self.method.writes_state(epoch)
    }

    fn drops_for_good(&self, epoch: usize) -> bool {
        self.method.drops_for_good(epoch)
    }

    fn course(&self, epoch: usize) -> Course {
        self.method.course(epoch)
    }

    fn batch_noise(&self, tick: Tick) -> Option<&BatchNoise> {
        self.method.batch_noise(tick)
    }

    fn needs_host(&self) -> Option<&'static str> {
        self.method.needs_host()
    }

    fn masks(&self) -> bool {
        self.method.masks()
    }

    fn sample(&self, arena: &Arena, tick: Tick) -> Vec<f32> {
        self.method.sample(arena, tick)
    }

    fn sample_reads_state(&self) -> bool {
        self.method.sample_reads_state()
    }

    fn vitals(&self, arena: &Arena, tick: Tick) -> Vitals {
        self.method.vitals(arena, tick)
    }

    fn vitals_of_state(&self, arena: &Arena, tick: Tick, vitals: Vitals) -> Vitals {
        self.method.vitals_of_state(arena, tick, vitals)
    }
}
