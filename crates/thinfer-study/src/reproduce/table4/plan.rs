//! What is to be run, and what it will cost.

use std::path::{Path, PathBuf};

use serde::Serialize;
use thinfer_data::Task;
use thinfer_data::files::read_json;
use thinfer_data::{Error, Result};
use thinfer_run::config::Config;
use thinfer_run::experiment::{Problem, ProblemInputs, chain_specs};
use thinfer_run::run::write_json;

use super::super::fixed::Fixed;
use super::super::images::shortened;
use super::super::table_file::{ADVICE, place, results};
use super::example::Example;
use super::outcome::Outcome;
use super::row::Row;
use super::summary::Table4;
use crate::selectors::Selector;

/// Multiply-adds a second of one core in training, for estimates: between what the narrow first
/// layer of the paper's networks reaches on an Intel Xeon with AVX-512 and what coordinate descent
/// does.
const MULTIPLY_ADDS_A_SECOND: f64 = 8e9;

const FIXED: Fixed = Fixed {
    rows: &["method.kind", "prune.regrow", "prune.target", "chains"],
    seeds: &["seed", "data.seed"],
    data: Some(("data.kind", "--examples")),
};

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Simulated designs.
    pub examples: Vec<Example>,
    /// Rows.
    pub rows: Vec<Row>,
    /// The seeds; each is an independent data set, and a repeat of every row.
    pub seeds: Vec<u64>,
    /// The most epochs that a run may have; longer ones are scaled down to it. The lasso has none.
    pub budget_epochs: Option<usize>,
    /// `a.b=c` settings on top of the shipped configurations, or of a selector as in
    /// `splbnn.starts=3`.
    pub overrides: Vec<String>,
    /// Runs at a time; `None` is one a core.
    pub jobs: Option<usize>,
}

/// One run to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Job {
    pub(super) example: Example,
    pub(super) row: Row,
    pub(super) repeat: u64,
}

/// What one line of the table will cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The design.
    pub example: Example,
    /// The row.
    pub method: Row,
    /// Runs asked for.
    pub repeats: usize,
    /// Runs that are there already.
    pub done: usize,
    /// Seconds of one run on one core.
    pub seconds_each: f64,
    /// Whether that was measured, by the runs that are there, or only estimated.
    pub measured: bool,
}

impl Cost {
    /// Seconds of one core that are still to be spent.
    pub fn seconds_left(&self) -> f64 {
        (self.repeats - self.done) as f64 * self.seconds_each
    }
}

fn shipped(example: Example) -> &'static str {
    // These are also what `thinfer train configs/example1.toml` runs.
    match example {
        Example::Example1 => include_str!("../../../configs/example1.toml"),
        Example::Example2 => include_str!("../../../configs/example2.toml"),
        Example::Example3 => include_str!("../../../configs/example3.toml"),
        Example::Bai => include_str!("../../../configs/bai.toml"),
        Example::Friedman => include_str!("../../../configs/friedman.toml"),
    }
}

impl Plan {
    /// The configuration of one run. Selectors take their data from it.
    pub fn config(&self, example: Example, row: Row, repeat: u64) -> Result<Config> {
        FIXED.check(&self.overrides)?;
        let mut overrides = vec![
            format!("seed={repeat}"),
            format!("prune.regrow={}", row == Row::Dpf),
            "chains=1".to_owned(),
        ];
        if (example, row) == (Example::Example2, Row::Dpf) {
            // What DFP prunes is gone, so Example 2 prunes late, at 0.003. With feedback a group
            // can come back, and the threshold has to stand clear of what pushes pruned weights
            // about.
            overrides.push("prune.hard_threshold=0.01".to_owned());
        }
        let of_a_row = |text: &&String| Row::ALL.iter().any(|row| row.setting(text).is_some());
        overrides.extend(self.overrides.iter().filter(|text| !of_a_row(text)).cloned());
        let config = Config::parse(shipped(example), &overrides)?;
        let budget = self.budget_epochs.filter(|_| matches!(row, Row::Dfp | Row::Dpf));
        let short = budget.map(|epochs| shortened(&config, epochs)).transpose()?;
        Ok(short.flatten().unwrap_or(config))
    }

    /// The selector of a row, or `None` where it is EM-MCMC. Settings that it cannot run with are
    /// refused here, before anything runs.
    pub fn selector(&self, example: Example, row: Row) -> Result<Option<Selector>> {
        let Some(selector) = row.selector(example, &self.overrides)? else { return Ok(None) };
        let rows = self.config(example, row, 1)?.data.train_rows;
        selector.check(rows)?;
        let short = self.budget_epochs.map(|epochs| selector.shortened(rows, epochs));
        Ok(Some(short.unwrap_or(selector)))
    }

    /// A number that differs where the results could.
    pub(super) fn fingerprint(&self, job: Job) -> Result<u32> {
        let config = self.config(job.example, job.row, job.repeat)?;
        let Some(selector) = self.selector(job.example, job.row)? else {
            return config.fingerprint();
        };
        let text = serde_json::to_string(&(config.seed, &config.data, &selector))
            .map_err(|e| Error::Data(format!("the settings cannot be written down: {e}")))?;
        Ok(crc32fast::hash(text.as_bytes()))
    }

    pub(super) fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for &example in Example::ALL.iter().filter(|e| self.examples.contains(e)) {
            for &row in Row::ALL.iter().filter(|r| self.rows.contains(r)) {
                jobs.extend(self.seeds.iter().map(|&repeat| Job { example, row, repeat }));
            }
        }
        jobs
    }

    /// Refuses settings that EM-MCMC cannot be run with; those of selectors are refused where they
    /// are read.
    pub(super) fn check(&self) -> Result<()> {
        let Some(&seed) = self.seeds.first() else { return Ok(()) };
        for job in self.jobs().into_iter().filter(|job| job.repeat == seed) {
            let Job { example, row, repeat } = job;
            if self.selector(example, row)?.is_some() {
                continue;
            }
            let config = self.config(example, row, repeat)?;
            let columns = config.data.columns.unwrap_or(example.design().columns);
            let groups: Vec<usize> = (0..columns).collect();
            let (task, classes) = if example.design().is_classification() {
                (Task::Classification, 2)
            } else {
                (Task::Regression, 0)
            };
            let inputs = ProblemInputs::Table { task, classes, count_mean: None, groups: &groups };
            let problem = Problem { train_rows: config.data.train_rows, fingerprint: 0, inputs };
            chain_specs(&config, problem)?;
        }
        Ok(())
    }

    /// The same, the longest first, so that the cores finish together.
    pub(super) fn jobs_to_run(&self) -> Result<Vec<Job>> {
        let mut jobs = self
            .jobs()
            .into_iter()
            .map(|job| Ok((job, self.estimate(job.example, job.row)?)))
            .collect::<Result<Vec<_>>>()?;
        jobs.sort_by(|a, b| b.1.total_cmp(&a.1));
        Ok(jobs.into_iter().map(|(job, _)| job).collect())
    }

    /// Seconds of one run, from the size of the data and the network alone.
    fn estimate(&self, example: Example, row: Row) -> Result<f64> {
        let config = self.config(example, row, 1)?;
        let rows = config.data.train_rows;
        let columns = config.data.columns.unwrap_or(example.design().columns);
        let work = if let Some(selector) = self.selector(example, row)? {
            selector.multiply_adds(rows, columns)
        } else {
            let first = config.model.hidden.first().copied().unwrap_or(1) * columns;
            // Without regrowth, columns that are pruned are not read again.
            let read = if row == Row::Dfp { 0.25 } else { 0.7 };
            read * 2.0 * (first * rows * config.train.epochs) as f64
        };
        Ok(work / MULTIPLY_ADDS_A_SECOND)
    }

    /// Where the result of a run is kept. The fingerprint is part of the name, so that runs with
    /// other settings lie side by side.
    pub(super) fn path(&self, folder: &Path, job: Job) -> Result<PathBuf> {
        let Job { example, row, repeat } = job;
        let settings = self.fingerprint(job)?;
        let name = format!("{}-{}-{repeat:02}-{settings:08x}.json", example.name(), row.name());
        Ok(folder.join("runs").join(name))
    }

    /// A finished run of these settings in `folder`.
    pub(super) fn kept(&self, folder: Option<&Path>, job: Job) -> Result<Option<Outcome>> {
        let Some(folder) = folder else { return Ok(None) };
        let settings = self.fingerprint(job)?;
        let read = |path: PathBuf| -> Result<Option<Outcome>> {
            let outcome: Option<Outcome> = read_json(&path, ADVICE)?;
            Ok(outcome.filter(|outcome| outcome.fingerprint == settings))
        };
        // Files had no fingerprint in their name once; what they hold still counts.
        let Job { example, row, repeat } = job;
        let old = format!("{}-{}-{repeat:02}.json", example.name(), row.name());
        match read(self.path(folder, job)?)? {
            Some(outcome) => Ok(Some(outcome)),
            None => read(folder.join("runs").join(old)),
        }
    }

    /// Writes the table of all runs in `folder` with these settings, also of designs, rows and
    /// seeds that this plan does not ask for; says where.
    pub(super) fn write_table(
        &self,
        folder: &Path,
        made: Table4,
        notice: impl Fn(&str),
    ) -> Result<PathBuf> {
        // The table of short runs is another.
        let name = match self.budget_epochs {
            Some(epochs) => format!("table4-{epochs}-epochs"),
            None => "table4".to_owned(),
        };
        let ours = |run: &Outcome| {
            let Outcome { example, method: row, repeat, fingerprint, .. } = *run;
            self.fingerprint(Job { example, row, repeat }).is_ok_and(|own| own == fingerprint)
        };
        let (path, written) = place(folder, &name, self.settings(), ours)?;
        let (mut runs, unreadable): (Vec<Outcome>, _) = results(folder);
        unreadable.iter().for_each(|error| notice(&error.to_string()));
        runs.retain(ours);
        runs.extend(written);
        runs.sort_by_key(|run| (run.example, run.method, run.repeat));
        runs.dedup_by_key(|run| (run.example, run.method, run.repeat));
        write_json(&path, &self.table_of(runs, made.failures, made.seconds, made.jobs)?)?;
        Ok(path)
    }

    /// A number that differs where the settings of any row do.
    fn settings(&self) -> u32 {
        let mut bytes = Vec::new();
        for example in Example::ALL {
            let rows = Row::ALL.map(|row| self.fingerprint(Job { example, row, repeat: 1 }));
            bytes.extend(rows.into_iter().flatten().flat_map(u32::to_le_bytes));
        }
        crc32fast::hash(&bytes)
    }

    /// What running the plan would cost, beside what `folder` holds already.
    pub fn costs(&self, folder: Option<&Path>) -> Result<Vec<Cost>> {
        self.check()?;
        let mut costs: Vec<Cost> = Vec::new();
        for job in self.jobs() {
            let kept = self.kept(folder, job)?;
            let Job { example, row: method, .. } = job;
            if costs.last().is_none_or(|c| (c.example, c.method) != (example, method)) {
                costs.push(Cost {
                    example,
                    method,
                    repeats: self.seeds.len(),
                    done: 0,
                    seconds_each: self.estimate(example, method)?,
                    measured: false,
                });
            }
            if let (Some(cost), Some(outcome)) = (costs.last_mut(), kept) {
                let before = if cost.measured { cost.done as f64 * cost.seconds_each } else { 0.0 };
                cost.done += 1;
                cost.seconds_each = (before + outcome.seconds) / cost.done as f64;
                cost.measured = true;
            }
        }
        Ok(costs)
    }
}
