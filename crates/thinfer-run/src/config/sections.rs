//! What a configuration holds, section by section. `method`, `prior` and `prune` are in thinfer-core,
//! `data` is in thinfer-data.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use thinfer_core::keys::{Kind, MOST};
use thinfer_core::model::Activation;
use thinfer_core::posterior::{SampleRule, Thin};
use thinfer_core::schedule::{Schedule, Shape};
use thinfer_data::section;
use thinfer_engine::cuda::Precision;

section! {
    /// The section `model`.
    pub struct ModelConfig in "model" {
        /// mlp, or an image network: convnet, lenet, resnet18-cifar, resnet34-cifar, resnet18,
        /// resnet34, resnet50, wrn-DEPTH-WIDTH
        ///
        /// `convnet` has three convolutions with batch norm
        name: String { Kind::Text, default: "mlp", images: "convnet" },

        /// share of each label that is spread over all classes
        label_smoothing: f64 { Kind::NumberBelow(0.0, 1.0), default: 0.0 },

        /// units of each hidden layer; [] is a linear model
        hidden: Vec<usize> { Kind::Integers(1, 1_000_000), default: [5, 3] },

        /// what hidden units compute
        activation: Activation { Kind::Choice(&["relu", "tanh"]), default: "relu" },

        /// whether the noise of a regression is known, learned, or predicted row by row
        ///
        /// Learned, it is one more parameter, `noise.log_sigma`. `"by-row"` gives the network a
        /// second output, the logarithm of the noise of a row; not for counts, and on the CPU
        noise: NoiseModel { Kind::Choice(&["known", "learned", "by-row"]), default: "known" },

        /// its standard deviation, or where learning starts
        ///
        /// For a table the target is standardised, so 1 is the target's own standard deviation
        noise_sigma: f64 {
            Kind::NumberAbove(0.0, 1e9), default: 1.0, reference_code: 0.7071067811865476
        },

        /// what a number is like around its prediction; absent: normal, of counts negative-binomial
        ///
        /// `"by-validation"` compares two of them on rows that are held out: normal and student-t,
        /// of counts negative-binomial and poisson
        likelihood: Option<Likelihood> {
            Kind::Choice(&["normal", "student-t", "poisson", "negative-binomial", "by-validation"]),
            later: LeftOut
        },

        /// degrees of freedom of likelihood = "student-t": fewer forgive outliers more
        dof: f64 { Kind::NumberAbove(0.0, 1e6), default: 4.0, later: LeftOut },
    }
}

/// What a number is like around what the network says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the keys of a configuration say what each is")]
pub enum Likelihood {
    Normal,
    StudentT,
    Poisson,
    NegativeBinomial,
    ByValidation,
}

impl Likelihood {
    /// Its word in a configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::StudentT => "student-t",
            Self::Poisson => "poisson",
            Self::NegativeBinomial => "negative-binomial",
            Self::ByValidation => "by-validation",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the keys of a configuration say what each is")]
pub enum NoiseModel {
    #[default]
    Known,
    Learned,
    ByRow,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the keys of a configuration say what each is")]
pub struct ScheduleConfigs {
    pub step_size: ScheduleConfig,
    pub temperature: ScheduleConfig,
    pub eta: ScheduleConfig,
    pub weight_decay: ScheduleConfig,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the keys of a configuration say what each is")]
pub struct ScheduleConfig {
    pub value: ScheduleValue,
    pub shape: ShapeName,
    pub cycles: usize,
    pub factor: f64,
    pub at_epochs: Vec<usize>,
    pub warm_up_epochs: f64,
}

/// A number, or a word that depends on the number of training rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ScheduleValue {
    /// As it stands.
    Number(f64),
    /// `1/sqrt(N)` or `1/N`.
    Word(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the keys of a configuration say what each is")]
pub enum ShapeName {
    Constant,
    Cyclical,
    Steps,
}

impl ScheduleConfig {
    /// The schedule for `n` training rows.
    pub fn schedule(&self, n: usize) -> Schedule {
        let value = match &self.value {
            ScheduleValue::Number(v) => *v,
            ScheduleValue::Word(word) if word == "1/N" => 1.0 / n as f64,
            ScheduleValue::Word(_) => 1.0 / (n as f64).sqrt(),
        };
        let shape = match self.shape {
            ShapeName::Constant => Shape::Constant,
            ShapeName::Cyclical => Shape::Cyclical { cycles: self.cycles },
            ShapeName::Steps => {
                Shape::Steps { factor: self.factor, at_epochs: self.at_epochs.clone() }
            }
        };
        Schedule { value, shape, warm_up_epochs: self.warm_up_epochs }
    }
}

section! {
    /// The section `train`.
    pub struct TrainConfig in "train" {
        /// passes over the data
        epochs: usize { Kind::Integer(1, MOST), default: 3000, images: 200 },

        /// rows a step
        ///
        /// At most all of them
        batch: usize { Kind::Integer(1, 100_000_000), default: 1024, images: 64 },

        /// snapshots at the end of each cycle
        ///
        /// One after each of its last epochs; at most 10⁵ a chain
        samples_per_cycle: usize { Kind::Integer(1, 100_000), default: 3 },

        /// parts of the sampling after which the run may end, since its samples agree
        ///
        /// The first has `train.samples_per_cycle` epochs, and each further one makes the sampling
        /// twice as long; all of them end with `train.epochs`. For a step size of one cycle
        stages: usize { Kind::Integer(1, 30), default: 1, later: LeftOut },

        /// R-hat of predictions at which the samples agree, after a stage
        r_hat: f64 { Kind::NumberAbove(1.0, 10.0), default: 1.05, later: LeftOut },

        /// effective sample size of predictions that they must have besides
        ess: f64 { Kind::Number(0.0, 1e9), default: 100.0, later: LeftOut },

        /// networks that make up the posterior: all snapshots, or the last of each chain (a deep
        /// ensemble)
        ///
        /// An ensemble has several `chains`, see `docs/ensembles.md`
        members: Members { Kind::Choice(&["snapshots", "last"]), default: "snapshots" },

        /// how often a line goes into the history; absent: about 500 lines
        record_every_epochs: Option<usize> { Kind::Integer(1, MOST) },

        /// how often the test images are scored during training
        evaluate_every_epochs: usize { Kind::Integer(1, MOST), default: 1 },

        /// arithmetic on a GPU; the CPU always computes in f32
        precision: PrecisionName {
            Kind::Choice(&["bf16", "tf32", "f32"]), default: "f32", images: "bf16"
        },

        /// channels whose weights are kept at every epoch's end, as LAYER:in:NUMBER or
        /// LAYER:out:NUMBER
        ///
        /// Their paths can then be drawn. Numbers count from 0: `"conv2:out:3"`
        trace: Vec<String> { Kind::Texts, default: [], later: Shown },

        /// a group that moved by less than this part of its length from one cycle's end to the next
        /// is trained no more
        ///
        /// Under Algorithms 2 and 3, see `docs/freeze.md`. Absent: all are trained to the end
        freeze_below: Option<f64> { Kind::NumberAbove(0.0, 100.0) },

        /// a layer is frozen whole when at least this share of its kept weights is frozen; absent:
        /// 0.9
        ///
        /// Its gradient is then not computed
        freeze_layer_share: Option<f64> { Kind::NumberAbove(0.0, 1.0) },

        /// whether the curves of the run are also written for TensorBoard
        ///
        /// Into the folder `tensorboard` of the run, see `docs/watch.md`. It changes no result
        tensorboard: bool { Kind::Switch, default: false, later: LeftOut },

        /// time between checkpoints; more where writing them would take over 2 % of the time
        checkpoint_seconds: f64 { Kind::NumberAbove(0.0, 1e9), default: 30.0 },

        /// steps between checkpoints, besides the time
        ///
        /// Absent: time alone
        checkpoint_steps: Option<u64> { Kind::Integer(1, MOST) },
    }
}

section! {
    /// The section `posterior`: which samples are averaged.
    pub struct PosteriorConfig in "posterior" {
        /// share of the cycles, or of the samples of one cycle, that is not averaged; absent: 0.5
        /// for tables, 0 for images
        ///
        /// Those from the start are left out
        burn_in: Option<f64> { Kind::NumberBelow(0.0, 1.0) },

        /// of so many samples the last one is averaged; absent: one of every cycle for tables, all
        /// for images
        ///
        /// They are counted from the last
        thin: Option<usize> { Kind::Integer(1, 100_000) },

        /// samples of each chain that are averaged at most; where there are more they are thinned
        ///
        /// A prediction takes the time and a file the room of so many networks. Absent: no limit
        at_most: Option<usize> { Kind::Integer(1, 100_000), later: LeftOut },
    }
}

impl PosteriorConfig {
    /// Whether all is left to the defaults.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Which samples are averaged, of those after `epochs`. Of a table the first half is burn-in
    /// and one sample of every cycle is kept; of images all are, as the paper does.
    pub(super) fn rule(
        &self,
        cycles: &[Range<usize>],
        epochs: &[usize],
        images: bool,
    ) -> SampleRule {
        let burn_in = self.burn_in.unwrap_or(if images { 0.0 } else { 0.5 });
        let thin = match self.thin {
            Some(thin) => Thin::Every(thin),
            None if images || cycles.len() == 1 => Thin::Every(1),
            None => Thin::OneACycle,
        };
        let every = match thin {
            Thin::Every(every) => every,
            Thin::OneACycle => epochs.len() / cycles.len().max(1),
        };
        // Burn-in is a share of the cycles, or of the samples of the only one.
        let dropped = |count: usize| ((burn_in * count as f64) as usize).min(count.max(1) - 1);
        let averaged = match cycles.get(dropped(cycles.len())) {
            Some(first) if cycles.len() > 1 => epochs.iter().filter(|e| **e >= first.start).count(),
            _ => epochs.len() - dropped(epochs.len()).min(epochs.len()),
        };
        let averaged = averaged.div_ceil(every.max(1));
        let thin = match self.at_most {
            Some(most) if averaged > most => Thin::Every(every.max(1) * averaged.div_ceil(most)),
            _ => thin,
        };
        SampleRule::new(cycles, epochs, burn_in, thin)
    }
}

/// What a posterior is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the keys of a configuration say what each is")]
pub enum Members {
    #[default]
    Snapshots,
    Last,
}

/// The arithmetic on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the keys of a configuration say what each is")]
pub enum PrecisionName {
    Bf16,
    Tf32,
    #[default]
    F32,
}

impl From<PrecisionName> for Precision {
    fn from(name: PrecisionName) -> Self {
        match name {
            PrecisionName::Bf16 => Precision::Bf16,
            PrecisionName::Tf32 => Precision::Tf32,
            PrecisionName::F32 => Precision::F32,
        }
    }
}
