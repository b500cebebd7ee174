//! Loss, schedules and pruning over the epochs.

use std::collections::BTreeSet;

use super::axis::Axis;
use super::behaviour::{steps_done, steps_per_epoch};
use super::page::{Key, count, figure, figures, paragraph, percent, plural, section};
use super::plots::{Ink, Mark, Plot, SERIES};
use crate::error::Result;
use crate::run::Run;
use crate::schedule::Clock;
use crate::train::{ChainResult, Record};

/// Chains in one plot, at most: more are neither told apart nor worth the bytes.
const MOST_CHAINS: usize = 24;
/// A quantity that spans more than this is shown on a logarithmic axis.
const WIDE: f64 = 20.0;

/// A quantity of one chain over its epochs, counted from 1.
type Course = Vec<(f64, f64)>;

/// The sections about the course of the run.
pub(super) fn sections(run: &Run) -> Result<String> {
    let shown: Vec<&ChainResult> = run.results.iter().take(MOST_CHAINS).collect();
    if shown.iter().all(|r| r.records.is_empty()) {
        let nothing = paragraph("The run has no history yet: it stopped before its first record.");
        return Ok(["loss", "schedule", "pruning"]
            .into_iter()
            .zip(["Loss", "Schedule", "Pruning"])
            .map(|(id, title)| section(id, title, &nothing))
            .collect());
    }
    let history = History { run, shown };
    Ok(section("loss", "Loss", &history.loss()?)
        + &section("schedule", "Schedule", &history.schedule()?)
        + &section("pruning", "Pruning", &history.pruning()?))
}

struct History<'a> {
    run: &'a Run,
    shown: Vec<&'a ChainResult>,
}

impl History<'_> {
    fn courses(&self, value: impl Fn(&Record) -> Option<f64>) -> Vec<Course> {
        let of_chain = |chain: &&ChainResult| -> Course {
            let at = |r: &Record| Some((r.epoch as f64 + 1.0, value(r)?));
            chain.records.iter().filter_map(at).collect()
        };
        self.shown.iter().map(of_chain).collect()
    }

    /// Up to six chains have a colour each; more share one.
    fn ink(&self, at: usize) -> Ink {
        Ink::Series(if self.has_own_colours() { at as u8 } else { 0 })
    }

    fn has_own_colours(&self) -> bool {
        self.shown.len() <= usize::from(SERIES)
    }

    fn keys(&self) -> Vec<Key> {
        if self.has_own_colours() {
            let key = |(at, chain): (usize, &&ChainResult)| {
                Key::new("line", self.ink(at), format!("chain {}", chain.chain))
            };
            return self.shown.iter().enumerate().map(key).collect();
        }
        let text = if self.shown.len() < self.run.results.len() {
            format!("the first {} of {} chains", self.shown.len(), self.run.results.len())
        } else {
            plural(self.shown.len(), "chain")
        };
        vec![Key::new("line", self.ink(0), text)]
    }

    fn opacity(&self) -> f64 {
        if self.has_own_colours() { 1.0 } else { 0.5 }
    }

    fn plot(&self, about: &str, y: Axis) -> Plot {
        let epochs = self.shown.iter().flat_map(|r| &r.records).map(|r| r.epoch + 1);
        let last = epochs.max().unwrap_or(1) as f64;
        let mut plot = Plot::new(about, Axis::whole(1.0_f64.min(last), last), "epoch", y);
        plot.right = 26;
        plot
    }

    /// One line a chain, each in its colour.
    fn by_chain(&self, courses: &[Course]) -> Vec<Mark> {
        let line = |(at, course): (usize, &Course)| {
            Mark::line(course, self.ink(at)).with(1.5, self.opacity())
        };
        courses.iter().enumerate().map(line).collect()
    }

    fn loss(&self) -> Result<String> {
        let loss = self.courses(|r| Some(r.loss));
        let largest = self.courses(|r| Some(r.largest_loss));
        let mut plot = self.plot("Mean training loss over epochs", {
            Axis::spanning(&heights(loss.iter().chain(&largest)), WIDE)
        });
        for (at, course) in largest.iter().enumerate() {
            plot.marks.push(Mark::line(course, self.ink(at)).with(3.0, 0.3));
        }
        plot.marks.extend(self.by_chain(&loss));
        let mut keys = self.keys();
        keys.push(Key::new("faint", self.ink(0), "largest epoch since the record before"));
        let about = "The faint line shows excursions between records: a chain that left its mode \
                      and came back.";
        let figure = figure("Mean training loss of an epoch", &plot, &keys, about)?;
        Ok(figures(&[figure]) + &paragraph(&self.clipped()))
    }

    fn clipped(&self) -> String {
        let records = self.run.results.iter().flat_map(|r| &r.records);
        let clipped: u64 = records.map(|r| r.clipped_steps).sum();
        let steps = steps_done(self.run);
        match (self.run.info.config.method.clip, clipped) {
            (None, 0) => "No step was clipped; `method.clip` is not set.".into(),
            (Some(limit), 0) => format!("No step was clipped; `method.clip` is {limit}."),
            (limit, n) => format!(
                "{} of {} steps were clipped ({}): their gradient was longer than `method.clip`{}.",
                count(n as usize),
                count(steps as usize),
                percent(n as f64 / (steps as f64).max(1.0)),
                limit.map_or_else(String::new, |l| format!(" = {l}")),
            ),
        }
    }

    fn schedule(&self) -> Result<String> {
        let step_size = self.courses(|r| Some(r.step_size));
        let mut plot = self.plot("Step size over epochs", Axis::linear(heights(&step_size)));
        // All chains follow one schedule; the longest shows all of it.
        let longest = step_size.iter().max_by_key(|course| course.len());
        let mut keys = vec![Key::new("line", Ink::Series(0), "step size l = \u{394}t\u{b2}")];
        if let Some(course) = longest {
            plot.marks.push(Mark::line(course, Ink::Series(0)));
            let samples = self.sampled();
            if !samples.is_empty() {
                plot.marks.push(Mark::Dots { points: samples, ink: Ink::Series(1), radius: 3.0 });
                keys.push(Key::new("dot", Ink::Series(1), "a sample was taken"));
            }
        }
        let mut all = vec![figure("Step size", &plot, &keys, "")?];

        let n = self.run.data.train_rows as f64;
        let effective = self.courses(|r| r.effective_temperature.map(|t| t * n));
        if effective.iter().any(|course| !course.is_empty()) {
            let asked = self.courses(|r| Some(r.temperature * n));
            let heights = heights(asked.iter().chain(&effective));
            let mut axis = Axis::spanning(&heights, WIDE);
            if !axis.is_logarithmic() {
                // From 0: the distance to it is what matters, not the last digits.
                axis = Axis::linear(heights.into_iter().chain([0.0]));
            }
            let mut plot = self.plot("Temperature times N over epochs", axis);
            for course in asked.iter().take(1) {
                plot.marks.push(Mark::line(course, Ink::Muted).with(4.0, 0.6));
            }
            for course in &effective {
                plot.marks.push(Mark::line(course, Ink::Series(0)).with(1.5, self.opacity()));
            }
            let keys = [
                Key::new("faint", Ink::Muted, "asked for, k\u{b2} N"),
                Key::new("line", Ink::Series(0), "of the injected noise, mean over weights"),
            ];
            let about = "1 is the posterior; below it the chain is colder than the posterior, \
                          near 0 it only optimises.";
            all.push(figure("Temperature times N", &plot, &keys, about)?);
        }
        let tau = self.courses(|r| r.tau_mean);
        if tau.iter().any(|course| !course.is_empty()) {
            let mut plot = self.plot("Mean of tau over epochs", Axis::linear(heights(&tau)));
            plot.marks = self.by_chain(&tau);
            let about = "\u{3c4} is the adaptive rate of a weight, between 0 and 1.";
            all.push(figure("Mean of \u{3c4} over weights", &plot, &self.keys(), about)?);
        }
        let mut html = figures(&all);
        if effective.iter().all(Vec::is_empty) {
            html.push_str(&paragraph("This method injects no noise that has a temperature."));
        }
        Ok(html)
    }

    /// The step size at the end of each epoch that gave a sample.
    fn sampled(&self) -> Vec<(f64, f64)> {
        let (config, rows) = (&self.run.info.config, self.run.data.train_rows);
        let schedule = config.schedule.step_size.schedule(rows);
        let clock =
            Clock { steps_per_epoch: steps_per_epoch(self.run), epochs: config.train.epochs };
        let snapshots = self.shown.iter().flat_map(|r| &r.snapshots);
        let epochs: BTreeSet<usize> = snapshots.map(|s| s.epoch + 1).collect();
        let at = |epoch: usize| schedule.at(epoch as u64 * clock.steps_per_epoch - 1, clock);
        epochs.into_iter().map(|epoch| (epoch as f64, at(epoch))).collect()
    }

    fn pruning(&self) -> Result<String> {
        let pruned = self.courses(|r| Some(r.pruned_share));
        let spike = self.courses(|r| Some(r.spike_share));
        let live = self.courses(|r| Some(r.live_inputs as f64));
        if heights(pruned.iter().chain(&spike)).iter().all(|share| *share == 0.0) {
            let inputs = heights(&live).last().copied().unwrap_or_default();
            return Ok(paragraph(&format!(
                "Nothing was pruned and nothing is in the spike: all {} are read.",
                plural(inputs as usize, "input")
            )));
        }
        let mut shares = self.plot("Pruned and spike share over epochs", Axis::between(0.0, 1.0));
        // Often they are the same, so the one behind is wider.
        for course in &spike {
            shares.marks.push(Mark::line(course, Ink::Series(1)).with(4.0, 0.5 * self.opacity()));
        }
        for course in &pruned {
            shares.marks.push(Mark::line(course, Ink::Series(0)).with(1.5, self.opacity()));
        }
        let keys = [
            Key::new("line", Ink::Series(0), "pruned (hard mask)"),
            Key::new("faint", Ink::Series(1), "in the spike (soft mask)"),
        ];
        let title = "Share of grouped weights";
        let shares = figure(title, &shares, &keys, "")?;

        let zero = heights(&live).contains(&0.0);
        // Nothing left is half an input: a logarithm has no other place for it.
        let raised: Vec<Course> = live
            .iter()
            .map(|course| course.iter().map(|(x, y)| (*x, y.max(0.5))).collect())
            .collect();
        let mut axis = Axis::logarithmic(heights(&raised));
        if zero {
            let half = 0.5f64.log10();
            axis.labels.retain(|l| l.0 >= 0.0);
            axis.labels.insert(0, (half, "0".into()));
        }
        let mut plot = self.plot("Inputs that are read over epochs", axis);
        plot.marks = self.by_chain(&raised);
        let (inputs, variables) = (self.run.data.groups.len(), self.run.data.names.len());
        let about = if inputs == variables {
            String::new()
        } else {
            let (inputs, variables) = (count(inputs), plural(variables, "variable"));
            format!("{variables} make {inputs} inputs: a category has one for each of its levels.")
        };
        let live = figure("Inputs that the network reads", &plot, &self.keys(), &about)?;
        Ok(figures(&[shares, live]))
    }
}

fn heights<'a>(courses: impl IntoIterator<Item = &'a Course>) -> Vec<f64> {
    courses.into_iter().flatten().map(|p| p.1).collect()
}
