//! Trains a Bayesian neural network and thins it, in the same run.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use thinfer::config::Config;
//! use thinfer::data::Bundle;
//! use thinfer::evaluate::evaluate;
//! use thinfer::experiment::chain_specs;
//! use thinfer::train::{Setting, Silent, run_chains};
//!
//! let settings = ["data.columns=8", "data.train_rows=200", "train.epochs=12"];
//! let config = Config::parse("", &settings.map(str::to_owned))?;
//! let data = Bundle::load(&config.data, config.seed)?;
//! let specs = chain_specs(&config, &data)?;
//! let network = specs[0].network.clone();
//! let stop = AtomicBool::new(false);
//! let setting = Setting::in_memory(&stop, &Silent, 1);
//! let results = run_chains(specs, &data.train, &setting)?;
//! let evaluation = evaluate(&config, &network, &data, &results)?;
//! assert!(evaluation.posterior.mse.is_some());
//! # Ok::<(), thinfer::Error>(())
//! ```
//!
//! The crates below, each of which uses only those before it: [`engine`] (networks as data and
//! plans that run them), [`data`], `thinfer-core` (methods, pruning, chains, posterior),
//! `thinfer-run` (configuration, run folders, evaluation), `thinfer-study` (selection, the paper's
//! tables, reports, exports).
//!
//! | feature | on by default | what it adds |
//! |---|---|---|
//! | `report` | yes | `thinfer-study`: selection, the paper's tables, comparisons, reports, exports, self test |
//! | `onnx` | yes | exports as ONNX graphs |
//! | `parquet` | yes | Parquet tables |

/// What this library was built with, each with whether it is there.
pub const FEATURES: [(&str, bool); 5] = [
    ("cuda", true),
    ("images", true),
    ("onnx", cfg!(feature = "onnx")),
    ("parquet", cfg!(feature = "parquet")),
    ("report", cfg!(feature = "report")),
];

pub use thinfer_core::{
    classify, density, device, linear, methods, metrics, model, posterior, prune, schedule, shrink,
    train, weights,
};
pub use thinfer_data as data;
pub use thinfer_data::{Error, Result, threads};
pub use thinfer_engine as engine;
pub use thinfer_run::{
    config, diagnose, evaluate, evaluated, experiment, images, predict, registry, run,
};
#[cfg(feature = "report")]
#[doc(hidden)]
pub use thinfer_study::fuzzing;
#[cfg(feature = "report")]
pub use thinfer_study::{
    bench, compare, effects, enumeration, export, finish, folds, machine, proposal, report,
    reproduce, select, selectors, selftest, subnetwork, watch,
};
