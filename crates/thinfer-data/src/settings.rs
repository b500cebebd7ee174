//! What to load: the section `data` of a configuration.

use serde::{Deserialize, Serialize};

use crate::simulate::{Example, Variant};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the keys of a configuration say what each field does")]
pub struct DataConfig {
    pub kind: DataKind,
    pub variant: Variant,
    pub columns: Option<usize>,
    pub train_rows: usize,
    pub validation_rows: usize,
    pub test_rows: usize,
    pub seed: Option<u64>,
    pub path: Option<String>,
    pub target: Option<String>,
    pub task: TaskChoice,
    pub holdout: f64,
    pub image_size: usize,
    pub crop_padding: Option<usize>,
    pub flip: Option<bool>,
    pub skip_at_most: usize,
}

/// The defaults of every preset.
impl Default for DataConfig {
    fn default() -> Self {
        Self {
            kind: DataKind::Example1,
            variant: Variant::Sun,
            columns: None,
            train_rows: 10_000,
            validation_rows: 1_000,
            test_rows: 1_000,
            seed: None,
            path: None,
            target: None,
            task: TaskChoice::Auto,
            holdout: 0.2,
            image_size: 224,
            crop_padding: None,
            flip: None,
            skip_at_most: 100,
        }
    }
}

impl DataConfig {
    /// The seed of generated data and of held-out images, in a run with this seed.
    pub fn seed_in(&self, run: u64) -> u64 {
        self.seed.unwrap_or(run)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the keys of a configuration say what each field does")]
pub enum DataKind {
    Example1,
    Example2,
    Example3,
    Bai,
    Friedman,
    Table,
    Shapes,
    Mnist,
    FashionMnist,
    Cifar10,
    Cifar100,
    Images,
}

impl DataKind {
    /// Whether the data is images.
    pub fn is_images(self) -> bool {
        self.example().is_none() && self != DataKind::Table
    }

    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            DataKind::Example1 => "example1",
            DataKind::Example2 => "example2",
            DataKind::Example3 => "example3",
            DataKind::Bai => "bai",
            DataKind::Friedman => "friedman",
            DataKind::Table => "table",
            DataKind::Shapes => "shapes",
            DataKind::Mnist => "mnist",
            DataKind::FashionMnist => "fashion-mnist",
            DataKind::Cifar10 => "cifar10",
            DataKind::Cifar100 => "cifar100",
            DataKind::Images => "images",
        }
    }

    /// The simulated example, if it is one.
    pub fn example(self) -> Option<Example> {
        match self {
            DataKind::Example1 => Some(Example::Example1),
            DataKind::Example2 => Some(Example::Example2),
            DataKind::Example3 => Some(Example::Example3),
            DataKind::Bai => Some(Example::Bai),
            DataKind::Friedman => Some(Example::Friedman),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the keys of a configuration say what each field does")]
pub enum TaskChoice {
    Auto,
    Regression,
    Counts,
    Classification,
}
