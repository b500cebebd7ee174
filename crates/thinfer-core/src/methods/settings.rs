//! The settings that methods are made from: the sections `method`, `prior` and `prune`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use thinfer_data::section;

use super::batch_noise::BatchNoiseRule;
use super::em_mcmc::{AfterFreeze, Assignment, Cadence};
use super::registry::{MethodKind, NAMES, own_keys};
use super::sghmc::{NoiseRule, RhoRule};
use crate::keys::{Kind, MOST};
use crate::prune::{Grouping, Rule};
use crate::shrink::Shrinking;

/// What is written where nothing is to be limited and the default is a limit.
pub const NO_LIMIT: &str = "none";

section! {
    /// The section `method`: what several methods read, and the keys that one method declares.
    pub struct MethodConfig in "method" {
        /// Algorithm 3, 2, 1, or another method; `thinfer methods` lists them
        kind: MethodKind { Kind::Choice(NAMES), default: "em-mcmc" },

        /// β₁, how much of the velocity stays
        beta1: f64 { Kind::NumberBelow(0.0, 1.0), default: 0.1 },

        /// β₂, the factor on the gradient
        ///
        /// The temperature is k²/β₂
        beta2: f64 { Kind::NumberAbove(0.0, 1e3), default: 1.0 },

        /// momentum of SGD
        ///
        /// Also of DPF-Lin, SM, DSR and Rank-1
        momentum: f64 { Kind::NumberBelow(0.0, 1.0), default: 0.9 },

        /// whether SGD looks ahead along its momentum
        nesterov: bool { Kind::Switch, default: false },

        /// noise of the sampler; `exact` has the temperature k²
        ///
        /// This is for Algorithms 2 and 3. Of `csghmc` it says whether the velocity follows the
        /// step size (`"exact"`)
        noise: NoiseRule {
            Kind::Choice(&["exact", "paper"]),
            default: "exact", paper: "paper", reference_code: "paper"
        },

        /// whether the noise of mini-batches is measured and taken out of the injected noise
        ///
        /// With `"account"` the rows of a step are drawn independently of other steps, and steps
        /// whose noise would be too large read more rows. It is for tables, on the CPU, and needs
        /// `method.noise = "exact"`. See `docs/sghmc.md`
        batch_noise: BatchNoiseRule {
            Kind::Choice(&["ignore", "account"]), default: "ignore", later: LeftOut
        },

        /// which form of the ρ update
        ///
        /// Algorithms 2 and 3 read it
        rho: RhoRule {
            Kind::Choice(&["exact", "code", "printed"]),
            default: "exact", paper: "printed", reference_code: "code"
        },

        /// standard deviation of the first velocity
        ///
        /// Algorithms 2 and 3 read it
        initial_momentum: f64 { Kind::Number(0.0, 1e3), default: 0.0, reference_code: 0.001 },

        /// largest norm of the data gradient
        ///
        /// Algorithms 2 and 3, cSGLD and cSGHMC read it. `"none"`: no limit
        clip: Option<f64> {
            Kind::NumberOr(&[NO_LIMIT]),
            default: 10.0, paper: absent, reference_code: absent, images: absent
        },
        ..own: OwnSettings
    }
}

/// The value of a key that one method declares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Value {
    Switch(bool),
    Integer(i64),
    Number(f64),
    Text(String),
}

/// The values of the keys that single methods declare, by their names without `method.`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnSettings(BTreeMap<&'static str, Value>);

impl OwnSettings {
    /// What is written of them.
    fn entries(&self) -> impl Iterator<Item = (&'static str, Option<&Value>)> {
        own_keys().filter_map(|(name, _)| {
            let value = self.0.get(name);
            (value.is_some() || SHOWN_WHERE_ABSENT.contains(&name)).then_some((name, value))
        })
    }

    /// A number.
    pub fn number(&self, key: &str) -> Option<f64> {
        match self.0.get(key)? {
            Value::Number(value) => Some(*value),
            _ => None,
        }
    }

    /// Gives a key another number, where some method declares it.
    pub fn set_number(&mut self, key: &str, value: f64) {
        if let Some((name, _)) = own_keys().find(|(name, kind)| *name == key && kind.is_number()) {
            self.0.insert(name, Value::Number(value));
        }
    }

    /// A whole number.
    pub fn whole(&self, key: &str) -> Option<usize> {
        match self.0.get(key)? {
            Value::Integer(value) => usize::try_from(*value).ok(),
            _ => None,
        }
    }

    /// A word.
    pub fn word(&self, key: &str) -> Option<&str> {
        match self.0.get(key)? {
            Value::Text(word) => Some(word),
            _ => None,
        }
    }
}

/// Keys that `run.json` has always shown, as `null` where they are absent. Later ones are left out.
const SHOWN_WHERE_ABSENT: [&str; 9] = [
    "alpha",
    "sampling_epochs",
    "members",
    "draws",
    "posterior",
    "prior_sd",
    "kl_epochs",
    "random_sign",
    "first_scale",
];

impl<'de> Deserialize<'de> for OwnSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut given = BTreeMap::<String, Option<Value>>::deserialize(deserializer)?;
        let own = own_keys().filter_map(|(name, kind)| {
            let value = match given.remove(name)?? {
                Value::Integer(whole) if kind.is_number() => Value::Number(whole as f64),
                other => other,
            };
            Some((name, value))
        });
        Ok(Self(own.collect()))
    }
}

section! {
    /// The section `prior`.
    pub struct PriorConfig in "prior" {
        /// wd = δ/N; of the slab where there is a spike
        weight_decay: f64 { Kind::Number(0.0, 1e6), default: 2e-4, images: 5e-4 },

        /// standard deviation of a weight under the prior, the slab's where there is a spike; instead
        /// of weight_decay
        ///
        /// wd = 1/(sd² N), so that the prior does not depend on the number of rows
        sd: Option<f64> { Kind::NumberAbove(0.0, 1e6), later: LeftOut },

        /// whether all weights have that width, or those of a layer with n inputs 1/√n of it
        ///
        /// With `"fan-in"` the width of what a layer computes does not depend on how many inputs it
        /// has. `"mclmc"` and `"nuts"` read it
        scale: PriorScale {
            Kind::Choice(&["same", "fan-in"]), default: "same", later: LeftOut
        },

        /// standard deviation of the logarithm of a learned noise around 0, where the noise is as
        /// wide as the target
        ///
        /// Absent: as wide as that of a weight. A narrow one keeps a network with more weights than
        /// rows from taking all noise for signal. `"mclmc"` and `"nuts"` read it
        noise_sd: Option<f64> { Kind::NumberAbove(0.0, 1e6), later: LeftOut },

        /// standard deviation of what the logarithm of the noise of a row differs by from that of
        /// others, about, where it is predicted row by row
        ///
        /// It is the width of the weights of the output ln σ, times 1/√n with scale = "fan-in".
        /// Absent: 0.5. `prior.noise_sd` is the width of its bias. `"mclmc"`, `"smile"` and `"nuts"`
        /// read it
        noise_row_sd: Option<f64> { Kind::NumberAbove(0.0, 1e6), later: LeftOut },

        /// wd₀ = δ₀/N of the spike
        ///
        /// Must be larger than `prior.weight_decay`
        spike_decay: f64 {
            Kind::NumberAbove(0.0, 1e6),
            default: 0.5, paper: 0.01, reference_code: 0.01, images: 2e-3
        },

        /// standard deviation of a weight in the spike; instead of spike_decay
        ///
        /// wd₀ = 1/(sd² N). Must be smaller than that of the slab
        spike_sd: Option<f64> { Kind::NumberAbove(0.0, 1e6), later: LeftOut },

        /// how a group gets into spike or slab: by the mode (EM), or by a draw (Gibbs)
        ///
        /// `"draw"` makes the chain a sampler of weights and assignments together, from which
        /// `inclusion` is a probability, see `docs/em-mcmc.md`. Nothing is pruned then
        assignment: Assignment { Kind::Choice(&["mode", "draw"]), default: "mode", later: LeftOut },

        /// whether the probability of the slab is learned, where the assignment is drawn; absent:
        /// where spike_probability is not given
        ///
        /// Each layer has its own, with a uniform prior
        learn_probability: Option<bool> { Kind::Switch, later: LeftOut },

        /// which weights are in spike or slab together
        ///
        /// Under the mean-square rule they are pruned together, too. `"kernel"`: one kernel of a
        /// convolution for each pair of channels, one input in a linear layer
        group: Grouping {
            Kind::Choice(&["kernel", "input", "output", "weight"]),
            default: "input", images: "kernel"
        },

        /// λ₁ on a group's mean square; or give spike_probability
        ///
        /// Below it a group is in the spike
        soft_threshold: Option<f64> {
            Kind::NumberAbove(0.0, 1e9), default: 1e-2, images: 1e-4
        },

        /// P(spike), from which λ₁ is computed
        ///
        /// It is computed group size by group size. This replaces the default of
        /// `prior.soft_threshold`; giving both is refused. Needs a positive `prior.weight_decay`.
        /// Where the assignment is drawn: P(spike) itself, or where learning starts; absent: 0.5
        spike_probability: Option<f64> { Kind::NumberAbove(0.0, 0.999_999_999) },
    }
}

/// How wide the prior of a weight is beside that of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PriorScale {
    /// All alike.
    #[default]
    Same,
    /// 1/√n in a layer with n inputs.
    FanIn,
}

impl PriorConfig {
    /// The same for a run on `rows` training rows: `sd` and `spike_sd` as weight decays,
    /// wd = 1/(sd² N).
    #[must_use]
    pub fn for_rows(&self, rows: usize) -> Self {
        let decay = |sd: f64| 1.0 / (sd * sd * rows.max(1) as f64);
        Self {
            weight_decay: self.sd.map_or(self.weight_decay, decay),
            spike_decay: self.spike_sd.map_or(self.spike_decay, decay),
            ..self.clone()
        }
    }
}

section! {
    /// The section `prune`.
    pub struct PruneConfig in "prune" {
        /// false is DFP (never comes back), true is DPF (feedback)
        ///
        /// `true` is refused with `preset = "reference-code"`
        regrow: bool { Kind::Switch, default: false },

        /// what is compared with the hard threshold: a group's mean square, or how far apart the
        /// weights (or their sizes) of a channel lie
        ///
        /// These are max w − min w, and max |w| − min |w| as the paper prints, over an input or
        /// output channel of a convolution. Tables have the first rule alone. See `docs/pruning.md`
        rule: Rule {
            Kind::Choice(&["mean-square", "range", "absolute-range"]),
            default: "mean-square", images: "range"
        },

        /// below it a group or channel is pruned (λ₂); absent: λ₁
        hard_threshold: Option<f64> {
            Kind::NumberAbove(0.0, 1e9), reference_code: 0.001, images: 0.05
        },

        /// share of all parameters to prune; the hard threshold is found during the run
        ///
        /// See `docs/pruning.md`. Giving both is refused
        target: Option<f64> { Kind::NumberAbove(0.0, 0.9999) },

        /// share of live weights that move elsewhere at a time: at first for SM, always for DSR
        rate: f64 { Kind::NumberAbove(0.0, 0.999), default: 0.5 },

        /// layers of which DPF-Lin, SM and DSR prune nothing; `*NAME` stands for all whose name
        /// ends so
        ///
        /// `"fc"` is the classifier. A name that fits no layer is refused
        dense_layers: Vec<String> { Kind::Texts, default: [] },

        /// whether a pruned channel keeps its norm scale and shift, as in the authors' program
        ///
        /// Its bias stays, too
        keep_norm: bool { Kind::Switch, default: false },

        /// channels of a layer are pruned so many at a time (range rules)
        ///
        /// Those of a residual stream are pruned to the nearest multiple, so that less is computed
        /// to fill up multiples only, where a device computes with them (16 on a GPU). See
        /// `docs/pruning.md`
        multiple: usize { Kind::Integer(1, 1024), default: 1, later: LeftOut },

        /// how much more is pruned where weights cost more multiply-adds (range rules); 0: one
        /// threshold for all
        ///
        /// It is the exponent of the ratio of these costs to their mean, which makes λ₂ higher
        work_exponent: f64 { Kind::Number(0.0, 1.0), default: 0.0, later: LeftOut },

        /// when training goes on with a smaller network, where pruning is for good
        ///
        /// See `docs/shrink.md`. Never with `prune.cadence = "step"`, the default of
        /// `preset = "paper"`
        shrink: Shrinking {
            Kind::Choice(&["where-it-pays", "always", "never"]), default: "where-it-pays"
        },

        /// EM and pruning run in the epochs after this one, counted from 0
        warm_up_epochs: usize { Kind::Integer(0, MOST), default: 50, images: 20 },

        /// pruning ends here, so that later samples share one mask
        ///
        /// It is the last epoch, counted from 0, in which the mask may change. Absent: no end
        freeze_after_epochs: Option<usize> { Kind::Integer(0, MOST) },

        /// pruning ends with this cycle; an alternative to prune.freeze_after_epochs
        ///
        /// Giving both is refused
        freeze_after_cycles: Option<usize> { Kind::Integer(1, 100_000) },

        /// whether the EM step goes on after pruning, or what is left is in the slab
        after_freeze: AfterFreeze { Kind::Choice(&["em", "slab"]), default: "em", later: LeftOut },

        /// how often EM and pruning run
        ///
        /// Before each epoch, or after each step
        cadence: Cadence {
            Kind::Choice(&["epoch", "step"]), default: "epoch", paper: "step"
        },
    }
}
