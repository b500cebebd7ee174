//! What to load: the section `data` of a configuration.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::keys::{Kind, MOST};
use crate::simulate::{DESIGNS, Design, Variant};
use crate::table::{Missing, Prepare, Rules};

crate::section! {
    /// The section `data`: what to load.
    pub struct DataConfig in "data" {
        /// a simulated example, your own table, a published image set, or your own images
        ///
        /// A file must say it. Your own table needs `data.path` and `data.target`; below are the
        /// simulated examples
        kind: DataKind { Kind::Choice(DataKind::NAMES), default: "example1" },

        /// which published formula of Example 1
        ///
        /// See `docs/deviations.md`. No effect on anything else
        variant: Variant { Kind::Choice(&["sun", "text", "code"]), default: "sun" },

        /// inputs of a simulated example
        ///
        /// Absent: as published. At least as many as the example has relevant inputs
        columns: Option<usize> { Kind::Integer(1, 100_000_000) },

        /// simulated rows to learn from
        train_rows: usize { Kind::Integer(10, MOST), default: 10000 },

        /// simulated rows to choose with
        validation_rows: usize { Kind::Integer(10, MOST), default: 1000 },

        /// simulated rows to report on
        test_rows: usize { Kind::Integer(10, MOST), default: 1000 },

        /// seed of the simulation; `seed` when absent
        ///
        /// Give it to run different seeds on the same data
        seed: Option<u64> { Kind::Integer(0, i64::MAX) },

        /// the table (.csv, .tsv or .parquet), or the folder of the images; absent: data/KIND
        path: Option<String> { Kind::Text },

        /// the column to predict
        target: Option<String> { Kind::Text },

        /// what kind of target it is
        ///
        /// `"auto"` takes text, truth values and numbers with at most two values as classes, other
        /// numbers as a regression, and refuses text that looks like numbers (`0,5`, `5 %`)
        task: TaskChoice {
            Kind::Choice(&["auto", "regression", "counts", "classification"]), default: "auto"
        },

        /// share of a table's rows (at most 1/3) or of your own images that is kept for the test
        /// part
        ///
        /// Of a table the usable rows count, and the validation part gets as many again; where that
        /// is fewer than 2 rows, 2 are kept. Of your own images that are not divided, it is the
        /// share of each class
        holdout: f64 { Kind::NumberAbove(0.0, 0.8), default: 0.2 },

        /// the column of a table that says which rows are for training and testing
        ///
        /// It has `train`, `test` or `validation` in every row and is no input. `data.holdout` is
        /// not used then
        split: Option<String> { Kind::Text, later: LeftOut },

        /// a second table with the same columns, to test on
        ///
        /// All rows of `data.path` are then learned from
        test_path: Option<String> { Kind::Text, later: LeftOut },

        /// into how many folds the rows of a table are divided
        ///
        /// `thinfer eval --folds K RUN` sets it, and trains once for each fold
        folds: Option<usize> { Kind::Integer(2, 1000), later: LeftOut },

        /// which fold is tested on, from 1; the others are learned from
        fold: Option<usize> { Kind::Integer(1, 1000), later: LeftOut },

        /// what becomes of missing values of a table
        ///
        /// `"impute"`, which a new run has: numbers get the median of the training rows, categories
        /// count as none of their levels, and an input of the same variable says where. A row
        /// without a target is left out. `"drop-rows"` leaves out every row with a missing value,
        /// as runs from before this key do; `"refuse"` refuses the table
        missing: Option<Missing> { Kind::Choice(&["impute", "drop-rows", "refuse"]), later: LeftOut },

        /// how much is made of the columns of a table
        ///
        /// `"full"`, which a new run has: dates become days and parts of the calendar, rare levels
        /// are pooled, and identifiers are left out. `"plain"` standardises numbers and makes a
        /// column of each level, as runs from before this key do
        prepare: Option<Prepare> { Kind::Choice(&["full", "plain"]), later: LeftOut },

        /// columns of a table that are used although they look like identifiers
        keep: Vec<String> { Kind::Texts, default: [], later: LeftOut },

        /// columns of a table that are not used
        leave_out: Vec<String> { Kind::Texts, default: [], later: LeftOut },
        /// columns of a table's numbers that are categories
        ///
        /// `thinfer select --categorical COLUMN` sets it
        categorical: Vec<String> { Kind::Texts, default: [], later: LeftOut },

        /// the columns of a table that are inputs; none named: all but the target
        ///
        /// The rows are divided before. `thinfer select` sets it to the variables that it selected
        only: Vec<String> { Kind::Texts, default: [], later: LeftOut },

        /// whether the rows of a table that are kept to choose with are learned from as well
        ///
        /// `thinfer select` sets it for the model on the selected variables
        join_validation: bool { Kind::Switch, default: false, later: LeftOut },

        /// height and width that your own images are cropped and resized to
        image_size: usize { Kind::Integer(8, 4096), default: 224 },

        /// whether your own images are all decoded once and kept in memory, in the size of
        /// `data.image_size`
        ///
        /// In training they are then cropped like published image sets (`data.crop_padding`), and not
        /// at random sizes. Small images that have this size already always are
        hold: bool { Kind::Switch, default: false, later: LeftOut },

        /// border of zeros around an image before a random crop, for published image sets
        ///
        /// Absent: 4 for CIFAR, 2 for MNIST and Fashion-MNIST
        crop_padding: Option<usize> { Kind::Integer(0, 64) },

        /// whether half the training images are mirrored left to right
        ///
        /// Absent: yes where a mirrored image is the same class
        flip: Option<bool> { Kind::Switch },

        /// images that cannot be decoded and are passed over, before the run stops
        skip_at_most: usize { Kind::Integer(0, MOST), default: 100 },
    }
}

impl DataConfig {
    /// The seed of generated data and of held-out images, in a run with this seed.
    pub fn seed_in(&self, run: u64) -> u64 {
        self.seed.unwrap_or(run)
    }

    /// How the columns of a table are prepared. A run from before there was a choice has none.
    pub fn rules(&self) -> Rules {
        let before = Rules::plain();
        Rules {
            missing: self.missing.unwrap_or(before.missing),
            prepare: self.prepare.unwrap_or(before.prepare),
            keep: self.keep.clone(),
            leave_out: self.leave_out.clone(),
        }
    }
}

/// What kind of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say it")]
pub enum DataKind {
    /// A simulated design, declared in `simulate/`.
    Simulated(&'static Design),
    Table,
    Shapes,
    Mnist,
    FashionMnist,
    Cifar10,
    Cifar100,
    Images,
}

/// Kinds that are not simulated designs.
const OTHERS: [DataKind; 7] = [
    DataKind::Table,
    DataKind::Shapes,
    DataKind::Mnist,
    DataKind::FashionMnist,
    DataKind::Cifar10,
    DataKind::Cifar100,
    DataKind::Images,
];

/// Keys of `data` that only some kinds read.
const OF_SIMULATED: &[&str] = &["columns", "train_rows", "validation_rows", "test_rows", "seed"];
const OF_TABLES: &[&str] = &[
    "path",
    "target",
    "task",
    "holdout",
    "split",
    "test_path",
    "folds",
    "fold",
    "missing",
    "prepare",
    "keep",
    "leave_out",
    "categorical",
    "only",
    "join_validation",
];
const OF_PUBLISHED: &[&str] = &["path", "crop_padding", "flip"];
const OF_OWN_IMAGES: &[&str] =
    &["path", "crop_padding", "flip", "seed", "holdout", "image_size", "hold", "skip_at_most"];

impl DataKind {
    /// The names of all kinds.
    pub const NAMES: &'static [&'static str] = &{
        let mut names = [""; DESIGNS.len() + OTHERS.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = if at < DESIGNS.len() {
                DESIGNS[at].name
            } else {
                OTHERS[at - DESIGNS.len()].name()
            };
            at += 1;
        }
        names
    };

    /// The kind called `name`.
    pub fn find(name: &str) -> Option<Self> {
        let designs = DESIGNS.iter().map(|design| DataKind::Simulated(design));
        designs.chain(OTHERS).find(|kind| kind.name() == name)
    }

    /// Its name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            DataKind::Simulated(design) => design.name,
            DataKind::Table => "table",
            DataKind::Shapes => "shapes",
            DataKind::Mnist => "mnist",
            DataKind::FashionMnist => "fashion-mnist",
            DataKind::Cifar10 => "cifar10",
            DataKind::Cifar100 => "cifar100",
            DataKind::Images => "images",
        }
    }

    /// Whether the data is images.
    pub fn is_images(self) -> bool {
        !matches!(self, DataKind::Simulated(_) | DataKind::Table)
    }

    /// The simulated design, if it is one.
    pub fn design(self) -> Option<&'static Design> {
        match self {
            DataKind::Simulated(design) => Some(design),
            _ => None,
        }
    }

    /// Whether it is made and not read.
    pub fn is_generated(self) -> bool {
        matches!(self, DataKind::Simulated(_) | DataKind::Shapes)
    }

    /// Whether it depends on a key of `data`, by its name without `data.`.
    pub fn reads(self, key: &str) -> bool {
        let reads = match self {
            DataKind::Simulated(design) if key == "variant" => return design.has_variants,
            DataKind::Simulated(_) => OF_SIMULATED,
            DataKind::Table => OF_TABLES,
            DataKind::Shapes => &["train_rows", "test_rows", "seed", "crop_padding", "flip"],
            DataKind::Mnist | DataKind::FashionMnist | DataKind::Cifar10 | DataKind::Cifar100 => {
                OF_PUBLISHED
            }
            DataKind::Images => OF_OWN_IMAGES,
        };
        key == "kind" || reads.contains(&key)
    }
}

/// Example 1.
impl Default for DataKind {
    fn default() -> Self {
        DataKind::Simulated(DESIGNS[0])
    }
}

impl Serialize for DataKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for DataKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::find(&name).ok_or_else(|| de::Error::unknown_variant(&name, Self::NAMES))
    }
}

/// What kind of target a column is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the keys of a configuration say what each field does")]
pub enum TaskChoice {
    #[default]
    Auto,
    Regression,
    Counts,
    Classification,
}
