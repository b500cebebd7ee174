//! DSR: dynamic sparse reparameterisation (Mostafa & Wang, 2019). SGD on a sparse network; once an
//! epoch the smallest live weights of all layers go and as many come at random places.

use std::sync::Arc;

use rayon::prelude::*;
use thinfer_data::Result;
use thinfer_engine::Arena;
use thinfer_engine::noise::{Key, Stream};

use super::kernels;
use super::mask::Cut;
use super::registry::{Declaration, When};
use super::sgd::{Pruned, Sgd, Update};
use super::sparse::{self, Layers, apportion, sizes_at, smallest};
use super::{Method, Tick, Vitals};
use crate::prune::KEEP;

/// Settings of DSR.
///
/// Minimises `L(w) = mean loss + ½ wd |w|²` over networks with a fixed number of live weights.
///
/// | name | symbol | default | range | too large |
/// |---|---|---|---|---|
/// | `rate` | K_p as a share of live weights | 0.05 | (0, 1) | forgets what was learned |
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dsr {
    /// The steps between reallocations.
    pub sgd: Sgd,
    /// The share of live weights that is reallocated at a time.
    pub rate: f64,
    /// The last epoch in which the mask may change.
    pub freeze_after_epochs: usize,
}

/// Which live weights go: the `count` of least magnitude in all layers together, but one of each
/// layer stays. Returns how many each layer loses.
///
/// Deviation: the authors' program prunes below a threshold H, which it halves or doubles until
/// about the wanted number goes; here the threshold is the one at which that number goes.
pub fn prune(layers: &Layers, count: usize, weights: &[f32], marks: &mut [u8]) -> Vec<usize> {
    let live: Vec<(f32, u32)> = {
        let marks = &*marks;
        let of_layer = |range| {
            // The largest one stays: it would be the last to go.
            let mut live = sizes_at(range, weights, marks, true);
            let largest = (0..live.len()).max_by(|&a, &b| live[a].0.total_cmp(&live[b].0));
            largest.map(|at| live.swap_remove(at));
            live
        };
        layers.ranges().par_iter().flat_map_iter(of_layer).collect()
    };
    let gone = smallest(live, count);
    gone.iter().for_each(|&at| marks[at as usize] &= !KEEP);
    let lost = |range: &std::ops::Range<usize>| {
        gone.iter().filter(|at| range.contains(&(**at as usize))).count()
    };
    layers.ranges().par_iter().map(lost).collect()
}

/// Revives weights at random places, `gains` of each layer, among those that `vacant` lists.
pub fn grow(gains: &[usize], vacant: &[Vec<u32>], key: Key, step: u64, marks: &mut [u8]) {
    for (layer, (vacant, &count)) in vacant.iter().zip(gains).enumerate() {
        let order = key.permutation(step * gains.len() as u64 + layer as u64, vacant.len());
        for &at in &order[..count.min(order.len())] {
            marks[vacant[at as usize] as usize] |= KEEP;
        }
    }
}

/// DSR on the layers of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct DsrMethod {
    /// Settings.
    pub config: Dsr,
    /// What may be pruned.
    pub layers: Layers,
    /// How many weights are pruned, at any time.
    pub pruned: usize,
    /// The key of the random places.
    pub key: Key,
}

impl DsrMethod {
    /// One reallocation.
    ///
    /// K weights go, then G_l = K R_l / Σ R come in layer l, where R_l are those left in it. They
    /// come where nothing was before, so not where a weight went just now, and start at zero. Where
    /// a layer has no room, the others take its part.
    pub fn reallocate(&self, arena: &mut Arena, epoch: usize) {
        let layers = &self.layers;
        let places = |range| sizes_at(range, arena.weights(), arena.marks(), false);
        let vacant: Vec<Vec<u32>> = layers
            .ranges()
            .par_iter()
            .map(|range| places(range).into_iter().map(|(_, at)| at).collect())
            .collect();
        let room: Vec<usize> = vacant.iter().map(Vec::len).collect();
        let live = layers.live(arena.marks());
        let wanted = (self.config.rate * live.iter().sum::<usize>() as f64).round() as usize;
        let (weights, marks) = arena.weights_and_marks();
        let lost = prune(layers, wanted.min(room.iter().sum()), weights, marks);
        arena.run(&Cut);
        let left: Vec<f64> = live.iter().zip(&lost).map(|(n, lost)| (n - lost) as f64).collect();
        let gains = apportion(lost.iter().sum(), &left, &room);
        let key = Key { stream: Stream::Mask, ..self.key };
        let (_, marks) = arena.weights_and_marks();
        grow(&gains, &vacant, key, epoch as u64, marks);
    }
}

impl Method for DsrMethod {
    fn state_buffers(&self) -> usize {
        1
    }

    fn start(&self, arena: &mut Arena, key: Key) -> Result<()> {
        self.layers.start(self.pruned, arena, key)
    }

    fn update(&self, arena: &mut Arena, tick: Tick) {
        let coeffs = self.config.sgd.coeffs(tick);
        arena.run(&Update { coeffs, pruned: Some(Pruned::Rests) });
    }

    /// Deviation: the authors' program reallocates every 100 to 800 steps, rarer later in the run;
    /// here once an epoch, which is where a GPU run shows its weights to the host.
    fn epoch(&self, arena: &mut Arena, tick: Tick) {
        if tick.epoch > 0 && tick.epoch <= self.config.freeze_after_epochs {
            self.reallocate(arena, tick.epoch);
        }
    }

    fn masks(&self) -> bool {
        true
    }

    fn vitals(&self, arena: &Arena, _tick: Tick) -> Vitals {
        Vitals { pruned_share: self.layers.pruned_share(arena.marks()), ..Vitals::default() }
    }
}

/// DSR as a configuration knows it.
pub const METHOD: Declaration = Declaration {
    name: "dsr",
    about: "DSR: sparse from the start, weights grow at random places",
    page: "docs/dsr.md",
    reads: sparse::READS,
    keys: &[],
    defaults: &[
        (When::Always, sparse::DEFAULTS),
        // K_p is a small part of the live weights; p₀ of SM is half of them.
        (When::Always, "prune.rate = 0.05"),
        (
            When::Images,
            r#"
prune.dense_layers = ["conv1", "fc", "*.downsample.0", "*.shortcut"]
schedule.step_size = { value = 0.1, shape = "steps", factor = 0.2, at_epochs = [60, 120, 160] }
train.batch = 100
"#,
        ),
    ],
    check: None,
    network: None,
    kernels: &[kernels::SGD_MASKED],
    build: |setup| {
        let (layers, pruned) = Layers::of(setup)?;
        // The authors stop after epoch 190 of 200.
        let freeze_after_epochs = setup.freeze_after_epochs.unwrap_or(setup.epochs * 19 / 20);
        let config = Dsr { sgd: Sgd::of(setup), rate: setup.prune.rate, freeze_after_epochs };
        Ok(Arc::new(DsrMethod { config, layers, pruned, key: setup.key }))
    },
};
