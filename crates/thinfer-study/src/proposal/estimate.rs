//! How long a run will take, from a few real steps on this machine.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde::Serialize;
use thinfer_core::device::Device;
use thinfer_core::methods::mclmc;
use thinfer_core::train::{ChainResult, Setting, Silent, division, run_chains};
use thinfer_data::{Bundle, Data, Result};
use thinfer_run::config::Config;
use thinfer_run::experiment::{build_network, chain_specs};

/// The seconds of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The most likely.
    pub seconds: f64,
    /// Where the run ends as soon as it may.
    pub least: f64,
    /// Where it goes on to its end.
    pub most: f64,
}

impl Estimate {
    /// The same whatever happens on the way.
    pub(super) fn fixed(seconds: f64) -> Self {
        Self { seconds, least: seconds, most: seconds }
    }
}

/// As `45 s`, or `45 s (30 to 60)` where it depends on the run.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&duration(self.seconds))?;
        if self.most > 1.1 * self.least {
            write!(f, " ({} to {})", duration(self.least), duration(self.most))?;
        }
        Ok(())
    }
}

/// Seconds in two figures.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 99.5 => format!("{} s", s.max(1.0).round()),
        s if s < 5940.0 => format!("{} min", rounded(s / 60.0)),
        s => format!("{} h", rounded(s / 3600.0)),
    }
}

/// A number below ten with one decimal.
fn rounded(value: f64) -> String {
    if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// A trial is long enough to be measured by.
const ENOUGH_SECONDS: f64 = 0.4;
/// Moves of an epoch in a trial, at most.
const MOST_MOVES: usize = 256;
/// Rows of a trial on a table, at most; more take their time in proportion.
const TRIAL_ROWS: usize = 20_000;
/// Epochs of a trial: the first looks for a start, the last leaves a sample.
const TRIAL_EPOCHS: usize = 7;

/// Seconds that all chains of a run of MCLMC need for a move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MovePace {
    /// One step of the search for a start.
    pub(super) start: f64,
    /// One move of the sampler.
    pub(super) walk: f64,
}

/// Times a few moves of the chains that a configuration asks for, all of them side by side as in
/// the run.
pub(super) fn move_pace(config: &Config, data: &Bundle) -> Result<MovePace> {
    let rows = data.train.rows();
    let some: Vec<u32> = (0..rows.min(TRIAL_ROWS) as u32).collect();
    let train = data.train.take_rows(&some);
    let small = Bundle { train_rows: train.rows(), train, ..data.clone() };
    let larger = rows as f64 / small.train_rows.max(1) as f64;
    let mut moves = 1;
    loop {
        let set = [
            format!("train.epochs={TRIAL_EPOCHS}"),
            "train.samples_per_cycle=1".into(),
            "train.stages=1".into(),
            format!("method.moves={moves}"),
        ];
        let trial = Config::parse(&config.to_toml()?, &set)?;
        let started = Instant::now();
        let results = in_memory(&trial, &Data::Table(small.clone()), Device::Cpu)?;
        let seconds = started.elapsed().as_secs_f64();
        if seconds < ENOUGH_SECONDS && moves < MOST_MOVES {
            moves *= 4;
            continue;
        }
        let side_by_side = division(results.len(), 0).0 as f64;
        let of = |epochs: &dyn Fn(usize) -> bool| -> f64 {
            let times = results.iter().flat_map(|result| &result.times);
            times.filter(|time| epochs(time.epoch)).map(|time| time.seconds).sum::<f64>()
        };
        let each = larger / (side_by_side * moves as f64);
        return Ok(MovePace {
            start: each * of(&|epoch| epoch == 0),
            walk: each * of(&|epoch| epoch > 0) / (TRIAL_EPOCHS - 1) as f64,
        });
    }
}

/// Moves in an epoch of MCLMC.
pub(super) fn moves(config: &Config, data: &Bundle) -> Result<f64> {
    let own = &config.method.own;
    if let Some(moves) = own.whole("moves") {
        return Ok(moves as f64);
    }
    let size = mclmc::Size {
        multiply_adds: build_network(config, data)?.multiply_adds(),
        rows: data.train.rows(),
        chains: config.chains,
        epochs: config.train.epochs,
    };
    Ok(mclmc::affordable(own.number("budget_seconds"), size) as f64)
}

/// Epochs between two trials whose difference is taken: what a run needs to begin is in both.
const BETWEEN: usize = 4;

/// Seconds of an epoch of all chains of a method on mini-batches, and what a run takes besides.
pub(super) fn epoch_pace(config: &Config, data: &Bundle) -> Result<(f64, f64)> {
    let rows = data.train.rows();
    let some: Vec<u32> = (0..rows.min(TRIAL_ROWS) as u32).collect();
    let train = data.train.take_rows(&some);
    let small = Bundle { train_rows: train.rows(), train, ..data.clone() };
    let larger = rows as f64 / small.train_rows.max(1) as f64;
    let small = Data::Table(small);
    let timed = |epochs: usize| -> Result<f64> {
        let set = [format!("train.epochs={epochs}"), "schedule.step_size.cycles=1".into()];
        let trial = Config::parse(&config.to_toml()?, &set)?;
        let begun = Instant::now();
        in_memory(&trial, &small, Device::Cpu)?;
        Ok(begun.elapsed().as_secs_f64())
    };
    let mut epochs = Vec::new();
    let started = Instant::now();
    // Several, since other programs may take the cores for a moment.
    while epochs.len() < 3 || started.elapsed().as_secs_f64() < ENOUGH_SECONDS {
        let (short, long) = (timed(1)?, timed(1 + BETWEEN)?);
        epochs.push((long - short).max(0.0) / BETWEEN as f64);
    }
    epochs.sort_by(f64::total_cmp);
    let each = larger * epochs[epochs.len() / 2].max(1e-6);
    // A prediction of the test rows by every sample, and the report.
    let scored = (data.test.rows() * config.sample_epochs().len().max(1)) as f64 / rows as f64;
    Ok((each, FIXED_SECONDS + scored * each / 3.0))
}

/// Reading, report and the rest, about.
const FIXED_SECONDS: f64 = 1.0;

/// The same of images.
const IMAGE_EPOCHS: usize = 2;

/// Seconds of an epoch on images that are in memory, without pruning.
pub(super) fn image_epoch(config: &Config, data: &Data, device: Device) -> Result<f64> {
    let timed = |epochs: usize| -> Result<f64> {
        let set = [
            format!("train.epochs={epochs}"),
            "train.samples_per_cycle=1".into(),
            "schedule.step_size.cycles=1".into(),
            format!("train.evaluate_every_epochs={}", epochs + 1),
            format!("prune.warm_up_epochs={epochs}"),
        ];
        let trial = Config::parse(&config.to_toml()?, &set)?;
        let started = Instant::now();
        in_memory(&trial, data, device)?;
        Ok(started.elapsed().as_secs_f64())
    };
    let (short, long) = (timed(1)?, timed(1 + IMAGE_EPOCHS)?);
    // A machine that was busy in the first trial alone says nothing by the difference.
    Ok(((long - short) / IMAGE_EPOCHS as f64).max(0.5 * long / (1 + IMAGE_EPOCHS) as f64))
}

/// Trains what a configuration asks for and keeps nothing.
fn in_memory(config: &Config, data: &Data, device: Device) -> Result<Vec<ChainResult>> {
    let stop = AtomicBool::new(false);
    let setting = Setting { device, ..Setting::in_memory(&stop, &Silent, 0) };
    run_chains(chain_specs(config, data)?, data, &setting)
}
