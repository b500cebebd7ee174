//! Runs that differ in nothing but the seed, and where the configurations of the others differ.

use std::collections::BTreeSet;

use serde::Serialize;
use thinfer_data::Result;
use thinfer_run::config::Config;

use super::entry::Entry;

/// Keys by which runs of one group may differ.
const SEEDS: [&str; 2] = ["seed", "data.seed"];

/// Runs that differ in nothing but the seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The numbers of its runs, from 0, in the order in which they were given.
    pub runs: Vec<usize>,
    /// Mean and spread of what the finished ones score.
    pub scores: Vec<OverSeeds>,
}

/// One score over the finished runs of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OverSeeds {
    /// What it is: `mse`, `accuracy`, `nll`, `ece`, `sparsity` or `seconds`.
    pub score: &'static str,
    /// How many runs have it.
    pub runs: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, of samples; `None` for one run.
    pub sd: Option<f64>,
}

/// A key that has not the same value in all runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Differing {
    /// Its dotted name.
    pub key: String,
    /// Its value in each run, or `absent`.
    pub values: Vec<String>,
}

/// A score of a run, where it is known.
pub(super) type Score = fn(&Entry) -> Option<f64>;

/// The scores that are told over seeds.
pub(super) const SCORES: [(&str, Score); 6] = [
    ("mse", |run| run.evaluated.as_ref()?.mse),
    ("accuracy", |run| run.evaluated.as_ref()?.accuracy),
    ("nll", |run| run.evaluated.as_ref()?.nll),
    ("ece", |run| run.evaluated.as_ref()?.ece),
    ("sparsity", |run| Some(run.evaluated.as_ref()?.sparsity)),
    ("seconds", |run| run.seconds.filter(|_| run.evaluated.is_some())),
];

impl Differing {
    /// Whether it is a seed, by which runs of one group may differ.
    pub fn is_seed(&self) -> bool {
        SEEDS.contains(&self.key.as_str())
    }
}

impl OverSeeds {
    /// Mean and standard deviation of values; nothing of none.
    pub fn of(score: &'static str, values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        let sd = (values.len() > 1).then(|| (squares / (n - 1.0)).sqrt());
        (!values.is_empty()).then_some(Self { score, runs: values.len(), mean, sd })
    }
}

impl Group {
    /// One of its scores.
    pub fn score(&self, name: &str) -> Option<&OverSeeds> {
        self.scores.iter().find(|of| of.score == name)
    }
}

/// Where the configurations differ, key by key in the order of their names.
pub(super) fn differing(configs: &[&Config]) -> Result<Vec<Differing>> {
    let [first, others @ ..] = configs else { return Ok(Vec::new()) };
    let each = others.iter().map(|other| first.differences(other)).collect::<Result<Vec<_>>>()?;
    let keys: BTreeSet<&String> = each.iter().flatten().map(|found| &found.key).collect();
    let values = |key: &String| {
        let of = |run: usize| each[run].iter().find(|found| found.key == *key);
        let of_first = (0..each.len()).find_map(|run| of(run).map(|found| found.here.clone()));
        let of_first = of_first.unwrap_or_default();
        let others = (0..each.len())
            .map(|run| of(run).map_or_else(|| of_first.clone(), |found| found.there.clone()));
        std::iter::once(of_first.clone()).chain(others).collect()
    };
    Ok(keys.iter().map(|key| Differing { key: (*key).clone(), values: values(key) }).collect())
}

/// Puts runs together that differ in nothing but the seed.
pub(super) fn groups(differing: &[Differing], runs: &[Entry]) -> Vec<Group> {
    let settings = |run: usize| -> Vec<&String> {
        differing.iter().filter(|of| !of.is_seed()).map(|of| &of.values[run]).collect()
    };
    let mut groups: Vec<Group> = Vec::new();
    for run in 0..runs.len() {
        match groups.iter_mut().find(|group| settings(group.runs[0]) == settings(run)) {
            Some(group) => group.runs.push(run),
            None => groups.push(Group { runs: vec![run], scores: Vec::new() }),
        }
    }
    for group in &mut groups {
        let of = |(name, score): (&'static str, Score)| {
            let values: Vec<f64> = group.runs.iter().filter_map(|&run| score(&runs[run])).collect();
            OverSeeds::of(name, &values)
        };
        group.scores = SCORES.into_iter().filter_map(of).collect();
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(settings: &[&str]) -> Config {
        let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
        Config::parse("", &settings).unwrap()
    }

    #[test]
    fn keys_that_differ_have_a_value_for_every_run() {
        let all = [
            config(&["seed=1"]),
            config(&["seed=2"]),
            config(&["seed=1", "train.epochs=7", "data.seed=3"]),
        ];
        let found = differing(&all.each_ref()).unwrap();
        let keys: Vec<&str> = found.iter().map(|of| of.key.as_str()).collect();
        assert_eq!(keys, ["data.seed", "seed", "train.epochs"]);
        assert_eq!(found[0].values, ["absent", "absent", "3"]);
        assert_eq!(found[1].values, ["1", "2", "1"]);
        assert_eq!(found[2].values[0], found[2].values[1]);
        assert_eq!(found[2].values[2], "7");
        assert_eq!(differing(&[&all[0], &all[0]]).unwrap(), []);
    }

    #[test]
    fn a_spread_is_that_of_samples() {
        let found = OverSeeds::of("mse", &[1.0, 2.0, 6.0]).unwrap();
        assert_eq!((found.runs, found.mean), (3, 3.0));
        assert!((found.sd.unwrap() - 7f64.sqrt()).abs() < 1e-12);
        assert_eq!(OverSeeds::of("mse", &[4.0]).unwrap().sd, None);
        assert_eq!(OverSeeds::of("mse", &[]), None);
    }
}
