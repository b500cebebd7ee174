//! DPF of Lin, Stich, Barba, Dmitriev & Jaggi (2020): dynamic model pruning with feedback. Not the
//! option of Algorithm 3 that the paper calls DPF too.

use std::sync::Arc;

use thinfer_data::{Error, Result};
use thinfer_engine::Arena;
use thinfer_engine::noise::Key;

use super::kernels;
use super::mask::{Mask, masked};
use super::registry::{Declaration, Setup, When};
use super::sgd::{Sgd, Update};
use super::sparse::{self, Layers, sizes_at, smallest};
use super::{Method, Tick, Vitals};
use crate::prune::{ALIVE, KEEP};

/// Settings of DPF.
///
/// Minimises `L(m ⊙ w)` by SGD: the network reads m ⊙ w, and the gradient that is found there moves
/// the dense w, pruned weights included. So a weight that was pruned by mistake grows back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DpfLin {
    /// The steps.
    pub sgd: Sgd,
    /// How many weights are pruned in the end.
    pub pruned: usize,
    /// T_p: the epoch with whose first step the mask is final.
    pub last_epoch: usize,
}

impl DpfLin {
    /// How many weights are pruned from an epoch on.
    ///
    /// s_t = s_f − s_f (1 − t/T_p)³
    pub fn pruned_at(&self, epoch: usize) -> usize {
        let t = (epoch as f64 / self.last_epoch.max(1) as f64).min(1.0);
        (self.pruned as f64 * (1.0 - (1.0 - t).powi(3))).round() as usize
    }
}

/// m: the `count` weights of least magnitude in all layers together are pruned, all others live.
///
/// Deviation: the source prunes convolutions and counts their weights alone; here hidden linear
/// layers belong to it too, and the count is a share of all parameters, as for every other method.
pub fn assign(layers: &Layers, count: usize, weights: &[f32], marks: &mut [u8]) {
    let mut all = Vec::new();
    for range in layers.ranges() {
        marks[range.clone()].iter_mut().for_each(|mark| *mark |= KEEP);
        all.append(&mut sizes_at(range, weights, marks, true));
    }
    smallest(all, count).iter().for_each(|&at| marks[at as usize] &= !KEEP);
}

/// DPF on the layers of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct DpfLinMethod {
    /// Settings.
    pub config: DpfLin,
    /// What may be pruned.
    pub layers: Layers,
}

impl Method for DpfLinMethod {
    fn state_buffers(&self) -> usize {
        1
    }

    fn start(&self, arena: &mut Arena, _key: Key) -> Result<()> {
        arena.set_marks(&vec![ALIVE; arena.len()])?;
        arena.separate_forward();
        Ok(())
    }

    fn has_forward_copy(&self) -> bool {
        true
    }

    fn materialize(&self, arena: &mut Arena, _tick: Tick) {
        arena.run(&Mask);
    }

    fn update(&self, arena: &mut Arena, tick: Tick) {
        arena.run(&Update { coeffs: self.config.sgd.coeffs(tick), pruned: None });
    }

    /// Deviation: the program that the settings are from makes a new mask every 16 steps; here once
    /// an epoch, which is where a GPU run shows its weights to the host.
    fn epoch(&self, arena: &mut Arena, tick: Tick) {
        if tick.epoch <= self.config.last_epoch {
            let (weights, marks) = arena.weights_and_marks();
            assign(&self.layers, self.config.pruned_at(tick.epoch), weights, marks);
        }
    }

    fn masks(&self) -> bool {
        true
    }

    fn sample(&self, arena: &Arena, _tick: Tick) -> Vec<f32> {
        masked(arena)
    }

    fn vitals(&self, arena: &Arena, _tick: Tick) -> Vitals {
        Vitals { pruned_share: self.layers.pruned_share(arena.marks()), ..Vitals::default() }
    }
}

/// DPF of Lin et al. as a configuration knows it.
pub const METHOD: Declaration = Declaration {
    name: "dpf-lin",
    about: "DPF of Lin et al.: SGD with feedback, pruned by global magnitude to a target",
    page: "docs/dpf-lin.md",
    reads: &[
        "method.momentum",
        "method.nesterov",
        "prune.target",
        "prune.dense_layers",
        "prune.freeze_after_epochs",
        "prune.freeze_after_cycles",
    ],
    keys: &[],
    defaults: &[
        (When::Always, sparse::DEFAULTS),
        (
            When::Images,
            r#"
prune.dense_layers = ["fc"]
schedule.step_size = { value = 0.1, shape = "steps", at_epochs = [100, 150] }
train.batch = 128
"#,
        ),
    ],
    check: None,
    network: None,
    kernels: &[kernels::MASK],
    build,
};

fn build(setup: &Setup<'_>) -> Result<Arc<dyn Method>> {
    let (layers, pruned) = Layers::of(setup)?;
    let epochs = setup.epochs;
    let last_epoch = setup.freeze_after_epochs.unwrap_or(epochs * 3 / 4).max(1);
    if last_epoch >= epochs {
        let problem = format!(
            "is reached in epoch {last_epoch}, counted from 0, but the run has {epochs}; give more train.epochs or an earlier end of pruning (prune.freeze_after_epochs)"
        );
        return Err(Error::config("prune.target", problem));
    }
    let config = DpfLin { sgd: Sgd::of(setup), pruned, last_epoch };
    Ok(Arc::new(DpfLinMethod { config, layers }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparsity_grows_by_a_cubic_and_stays() {
        let sgd = Sgd { momentum: 0.9, weight_decay: 0.0, nesterov: true };
        let config = DpfLin { sgd, pruned: 900, last_epoch: 150 };
        assert_eq!(config.pruned_at(0), 0);
        // 1 − (2/3)³ and 1 − (1/3)³ of 900.
        assert_eq!((config.pruned_at(50), config.pruned_at(100)), (633, 867));
        assert_eq!((config.pruned_at(150), config.pruned_at(199)), (900, 900));
    }

    #[test]
    fn a_pruned_weight_that_grew_comes_back() {
        let layers = Layers::at(vec![0..3, 4..6]);
        let mut marks = vec![ALIVE; 6];
        // Place 3 is a bias.
        assign(&layers, 2, &[0.1, 3.0, -2.0, 0.0, 0.2, -5.0], &mut marks);
        assert_eq!(marks, [2, ALIVE, ALIVE, ALIVE, 2, ALIVE]);
        assign(&layers, 2, &[4.0, 3.0, -2.0, 0.0, 0.2, -5.0], &mut marks);
        assert_eq!(marks, [ALIVE, ALIVE, 2, ALIVE, 2, ALIVE]);
    }
}
