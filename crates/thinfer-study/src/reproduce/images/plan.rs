//! What is to be run, and where it is kept.

use std::path::{Path, PathBuf};

use serde::Serialize;
use thinfer_data::files::read_json;
use thinfer_data::{Error, Result};
use thinfer_run::config::Config;
use thinfer_run::experiment::chain_specs;
use thinfer_run::run::write_json;

use super::super::fixed::Fixed;
use super::super::table_file::{ADVICE, place, results};
use super::budget::shortened;
use super::estimate::problem;
use super::outcome::Outcome;
use super::row::{PaperTable, Row};
use super::summary::Failure;

/// Data and network may be others, to see what a table does without a GPU.
const FIXED: Fixed = Fixed {
    rows: &["method.kind", "method.posterior", "prune.target", "prune.regrow", "chains"],
    seeds: &["seed"],
    data: None,
};

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The table.
    pub table: PaperTable,
    /// Its rows.
    pub rows: Vec<Row>,
    /// The seeds; each row is run once for each.
    pub seeds: Vec<u64>,
    /// The most epochs that a run may have; longer schedules are scaled down to it.
    pub budget_epochs: Option<usize>,
    /// `a.b=c` settings on top of the shipped configurations, before they are scaled down.
    pub overrides: Vec<String>,
}

/// One run to do.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) row: Row,
    pub(super) seed: u64,
    pub(super) config: Config,
    /// Whether the schedule is scaled down.
    pub(super) short: bool,
    pub(super) fingerprint: u32,
}

impl Job {
    /// In words.
    pub(super) fn name(&self) -> String {
        format!("{}, seed {}", self.row.name(), self.seed)
    }

    /// What its folder and its file begin with. The fingerprint is part of it, so that runs with
    /// other settings lie side by side and none is taken for another.
    pub(super) fn stem(&self) -> String {
        let Row { data, .. } = self.row;
        let length = if self.short {
            format!("-{}-epochs", self.config.train.epochs)
        } else {
            String::new()
        };
        let (row, seed, settings) = (self.row.name(), self.seed, self.fingerprint);
        format!("{data}-{row}-seed{seed}{length}-{settings:08x}")
    }

    /// The folder of the run.
    pub(super) fn folder(&self, out: &Path) -> PathBuf {
        out.join("runs").join(self.stem())
    }

    /// The file of the result.
    pub(super) fn file(&self, out: &Path) -> PathBuf {
        out.join("runs").join(self.stem() + ".json")
    }

    /// The result, where the run is finished.
    pub(super) fn kept(&self, out: &Path) -> Result<Option<Outcome>> {
        let outcome: Option<Outcome> = read_json(&self.file(out), ADVICE)?;
        Ok(outcome.filter(|outcome| outcome.fingerprint == self.fingerprint))
    }

    /// How far an interrupted run got.
    pub(super) fn begun(&self, out: &Path) -> bool {
        self.folder(out).join("run.json").exists()
    }
}

/// How many runs there are, and in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Asked for.
    pub asked: usize,
    /// Finished.
    pub done: usize,
    /// Begun and not finished.
    pub begun: usize,
}

impl Plan {
    /// The rows that `rows` names, or those of the paper, with the seeds.
    pub fn new(table: PaperTable, rows: &[String], seeds: Vec<u64>) -> Result<Self> {
        let rows = table.choose(rows)?;
        Ok(Self { table, rows, seeds, budget_epochs: None, overrides: Vec::new() })
    }

    /// The configuration of one run, and whether its schedule was scaled down; `None` where none is
    /// shipped.
    pub fn config(&self, row: &Row, seed: u64) -> Result<Option<(Config, bool)>> {
        FIXED.check(&self.overrides)?;
        let Some(text) = row.config else { return Ok(None) };
        let mut overrides = vec![format!("seed={seed}")];
        if let Some(percent) = row.percent {
            overrides.push(format!("prune.target={}", f64::from(percent) / 100.0));
        }
        if (row.network, row.method, row.percent) == ("resnet50", "dsr", Some(90)) {
            // The layers that DSR usually leaves dense are 11 % of this network.
            overrides.push("prune.dense_layers=[\"conv1\"]".to_owned());
        }
        overrides.extend(self.overrides.iter().cloned());
        let config = Config::parse(text, &overrides)?;
        if !config.data.kind.is_images() {
            let problem = format!(
                "is {}, but {} is about images",
                config.data.kind.name(),
                self.table.name()
            );
            return Err(Error::config("data.kind", problem));
        }
        let short = self.budget_epochs.map(|epochs| shortened(&config, epochs)).transpose()?;
        Ok(Some(match short.flatten() {
            Some(short) => (short, true),
            None => (config, false),
        }))
    }

    /// All runs: every row once, then every row with the next seed, so that a table that is stopped
    /// early has as many of its rows as can be.
    pub(super) fn jobs(&self) -> Result<Vec<Job>> {
        let mut jobs = Vec::new();
        for &seed in &self.seeds {
            for row in &self.rows {
                let Some((config, short)) = self.config(row, seed)? else { continue };
                let fingerprint = config.fingerprint()?;
                jobs.push(Job { row: *row, seed, config, short, fingerprint });
            }
        }
        Ok(jobs)
    }

    /// Refuses settings that a row cannot be run with, as far as they show without its data.
    pub(super) fn check(&self, jobs: &[Job]) -> Result<()> {
        // Seeds change nothing here, and chains are alike.
        for job in jobs.iter().filter(|job| Some(&job.seed) == self.seeds.first()) {
            chain_specs(&Config { chains: 1, ..job.config.clone() }, problem(&job.config))?;
        }
        Ok(())
    }

    /// How many runs there are, and how many of them `out` holds.
    pub fn counts(&self, out: &Path) -> Result<Counts> {
        let mut counts = Counts::default();
        for job in self.jobs()? {
            counts.asked += 1;
            let done = job.kept(out)?.is_some();
            counts.done += usize::from(done);
            counts.begun += usize::from(!done && job.begun(out));
        }
        Ok(counts)
    }

    /// Writes the table of all runs in `out` with these settings, also of rows and seeds that this
    /// plan does not ask for; says where.
    pub(super) fn write_table(
        &self,
        out: &Path,
        failures: Vec<Failure>,
        notice: impl Fn(&str),
    ) -> Result<PathBuf> {
        // The table of short runs is another.
        let name = match self.budget_epochs {
            Some(epochs) => format!("{}-{epochs}-epochs", self.table.name()),
            None => self.table.name().to_owned(),
        };
        let known = self.table.rows();
        let ours = |run: &Outcome| known.iter().any(|row| row.made(run) && self.gave(row, run));
        let (path, written) = place(out, &name, self.settings(&known), ours)?;
        let (mut runs, unreadable): (Vec<Outcome>, _) = results(out);
        unreadable.iter().for_each(|error| notice(&error.to_string()));
        runs.retain(ours);
        runs.extend(written);
        let key = |run: &Outcome| (run.network.clone(), run.method.clone(), run.percent, run.seed);
        runs.sort_by_key(key);
        runs.dedup_by_key(|run| key(run));
        write_json(&path, &self.table_of(runs, failures))?;
        Ok(path)
    }

    /// Whether a run of `row` has the settings of this plan.
    fn gave(&self, row: &Row, run: &Outcome) -> bool {
        let fingerprint = |config: Config| config.fingerprint().ok();
        let config = self.config(row, run.seed).ok().flatten();
        config.and_then(|(config, _)| fingerprint(config)) == Some(run.fingerprint)
    }

    /// A number that differs where the settings of any row do.
    fn settings(&self, rows: &[Row]) -> u32 {
        let configs = rows.iter().filter_map(|row| self.config(row, 1).ok().flatten());
        let numbers = configs.filter_map(|(config, _)| config.fingerprint().ok());
        let bytes: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
        crc32fast::hash(&bytes)
    }
}
