//! Loss, schedules and pruning over the epochs.

use thinfer_data::Result;

use super::axis::Axis;
use super::behaviour::clipping;
use super::chains::{Chains, Course, WIDE, heights};
use super::frozen;
use super::of_table::TableRun;
use super::page::{Key, Section, count, figure, figures, paragraph, plural, section};
use super::plots::{Ink, Mark};

/// The sections about the course of the run.
pub(super) fn sections(run: &TableRun<'_>) -> Result<Vec<Section>> {
    let chains = Chains::new(run.results);
    if chains.are_blank() {
        let nothing = paragraph("The run has no history yet: it stopped before its first record.");
        return Ok(["loss", "schedule", "pruning"]
            .into_iter()
            .zip(["Loss", "Schedule", "Pruning"])
            .map(|(id, title)| section(id, title, nothing.clone()))
            .collect());
    }
    let history = History { run, chains };
    Ok(vec![
        section("loss", "Loss", history.loss()?),
        section("schedule", "Schedule", history.schedule()?),
        section("pruning", "Pruning", history.pruning()?),
    ])
}

struct History<'a> {
    run: &'a TableRun<'a>,
    chains: Chains<'a>,
}

impl History<'_> {
    fn loss(&self) -> Result<String> {
        let loss = self.chains.courses(|r| Some(r.loss));
        let largest = self.chains.courses(|r| Some(r.largest_loss));
        let mut plot = self.chains.plot("Mean training loss over epochs", {
            Axis::spanning(&heights(loss.iter().chain(&largest)), WIDE)
        });
        for (at, course) in largest.iter().enumerate() {
            plot.marks.push(Mark::line(course, self.chains.ink(at)).with(3.0, 0.3));
        }
        plot.marks.extend(self.chains.lines(&loss));
        let mut keys = self.chains.keys();
        keys.push(Key::new("faint", self.chains.ink(0), "largest epoch since the record before"));
        let about = "The faint line shows excursions between records: a chain that left its mode \
                      and came back.";
        let figure = figure("Mean training loss of an epoch", &plot, &keys, about)?;
        Ok(figures(&[figure])
            + &paragraph(&clipping(
                self.run.results,
                &self.run.info.config,
                self.run.data.train_rows,
            ))
            + &frozen::of_chains(self.run.results, &self.run.info.config))
    }

    fn schedule(&self) -> Result<String> {
        let step_size = self.chains.courses(|r| Some(r.step_size));
        let mut plot = self.chains.plot("Step size over epochs", Axis::linear(heights(&step_size)));
        // All chains follow one schedule; the longest shows all of it.
        let longest = step_size.iter().max_by_key(|course| course.len());
        let mut keys = vec![Key::new("line", Ink::Series(0), "step size l = \u{394}t\u{b2}")];
        if let Some(course) = longest {
            plot.marks.push(Mark::line(course, Ink::Series(0)));
            let samples = self.chains.sampled(&self.run.info.config, self.run.data.train_rows);
            if !samples.is_empty() {
                plot.marks.push(Mark::Dots { points: samples, ink: Ink::Series(1), radius: 3.0 });
                keys.push(Key::new("dot", Ink::Series(1), "a sample was taken"));
            }
        }
        let mut all = vec![figure("Step size", &plot, &keys, "")?];

        let n = self.run.data.train_rows as f64;
        let effective = self.chains.courses(|r| r.effective_temperature.map(|t| t * n));
        if effective.iter().any(|course| !course.is_empty()) {
            let asked = self.chains.courses(|r| Some(r.temperature * n));
            let heights = heights(asked.iter().chain(&effective));
            let mut axis = Axis::spanning(&heights, WIDE);
            if !axis.is_logarithmic() {
                // From 0: the distance to it is what matters, not the last digits.
                axis = Axis::linear(heights.into_iter().chain([0.0]));
            }
            let mut plot = self.chains.plot("Temperature times N over epochs", axis);
            for course in asked.iter().take(1) {
                plot.marks.push(Mark::line(course, Ink::Muted).with(4.0, 0.6));
            }
            for course in &effective {
                plot.marks
                    .push(Mark::line(course, Ink::Series(0)).with(1.5, self.chains.opacity()));
            }
            let keys = [
                Key::new("faint", Ink::Muted, "asked for, k\u{b2} N"),
                Key::new("line", Ink::Series(0), "of the injected noise, mean over weights"),
            ];
            let about = "1 is the posterior; below it the chain is colder than the posterior, \
                          near 0 it only optimises. Noise of mini-batches comes on top, and clipped \
                          steps have no temperature.";
            all.push(figure("Temperature times N", &plot, &keys, about)?);
        }
        let tau = self.chains.courses(|r| r.tau_mean);
        if tau.iter().any(|course| !course.is_empty()) {
            let mut plot = self.chains.plot("Mean of tau over epochs", Axis::linear(heights(&tau)));
            plot.marks = self.chains.lines(&tau);
            let about = "\u{3c4} is the adaptive rate of a weight, between 0 and 1.";
            all.push(figure("Mean of \u{3c4} over weights", &plot, &self.chains.keys(), about)?);
        }
        let mut html = figures(&all);
        if effective.iter().all(Vec::is_empty) {
            html.push_str(&paragraph("This method injects no noise that has a temperature."));
        }
        Ok(html)
    }

    fn pruning(&self) -> Result<String> {
        let pruned = self.chains.courses(|r| Some(r.pruned_share));
        let spike = self.chains.courses(|r| Some(r.spike_share));
        let live = self.chains.courses(|r| Some(r.live_inputs as f64));
        if heights(pruned.iter().chain(&spike)).iter().all(|share| *share == 0.0) {
            let inputs = heights(&live).last().copied().unwrap_or_default();
            return Ok(paragraph(&format!(
                "Nothing was pruned and nothing is in the spike: all {} are read.",
                plural(inputs as usize, "input")
            )));
        }
        let mut shares =
            self.chains.plot("Pruned and spike share over epochs", Axis::between(0.0, 1.0));
        // Often they are the same, so the one behind is wider.
        for course in &spike {
            shares
                .marks
                .push(Mark::line(course, Ink::Series(1)).with(4.0, 0.5 * self.chains.opacity()));
        }
        for course in &pruned {
            shares.marks.push(Mark::line(course, Ink::Series(0)).with(1.5, self.chains.opacity()));
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
        let mut plot = self.chains.plot("Inputs that are read over epochs", axis);
        plot.marks = self.chains.lines(&raised);
        let (inputs, variables) = (self.run.data.groups.len(), self.run.data.names.len());
        let about = if inputs == variables {
            String::new()
        } else {
            let (inputs, variables) = (count(inputs), plural(variables, "variable"));
            format!("{variables} make {inputs} inputs: a category has one for each of its levels.")
        };
        let live = figure("Inputs that the network reads", &plot, &self.chains.keys(), &about)?;
        Ok(figures(&[shares, live]))
    }
}
