//! What the chains did, and what to make of it.

use thinfer_core::train::ChainResult;
use thinfer_data::Task;
use thinfer_run::config::Config;
use thinfer_run::evaluate::{
    Behaviour, Convergence, Evaluation, LEVEL, MOST_CLIPPED, Quality, has_ended,
};

use super::chains::steps_done;
use super::of_table::TableRun;
use super::page::{
    Section, bullets, count, level, listed, number, number_or_nothing, paragraph, percent, plural,
    section, table,
};

/// Samples that differ by less than this share of the target's spread are nearly copies.
const COPIES: f64 = 0.01;
/// Temperatures further apart than this factor are different.
const FAR: f64 = 1.5;
/// More clipped steps than this share change what the chain samples from.
const CLIPPED: f64 = MOST_CLIPPED;
/// Coverage further than this from its level is wrong.
const MISCOVERED: f64 = 0.05;

/// The section about behaviour.
pub(super) fn section_of(
    run: &TableRun<'_>,
    evaluation: &Evaluation,
    warnings: &[String],
) -> Section {
    let seen = &evaluation.behaviour;
    let steps = steps_done(run.results, &run.info.config, run.data.train_rows);
    let mut html = warned(warnings);
    let spread = target_spread(run);
    let unit = match evaluation.task {
        Task::Regression => "in units of the target",
        Task::Classification => "of class probabilities",
    };
    let mut rows = temperatures(seen);
    rows.extend([
        ["Mean of \u{3c4} over weights at the end".to_owned(), number_or_nothing(seen.tau_mean)],
        ["Standard deviation of \u{3c4} over weights".to_owned(), number_or_nothing(seen.tau_sd)],
        [format!("Disagreement between samples, {unit}"), number_or_nothing(seen.disagreement)],
        ["Spread (sd) of the target on the test rows".to_owned(), number_or_nothing(spread)],
        [
            "Clipped steps".to_owned(),
            format!("{} of {}", count(seen.clipped_steps as usize), count(steps as usize)),
        ],
        ["Largest loss after the first tenth of the run".to_owned(), number(seen.largest_loss)],
        ["Final loss".to_owned(), number(seen.final_loss)],
    ]);
    html.push_str(&table(&[], &rows.into_iter().map(Vec::from).collect::<Vec<_>>()));
    section("behaviour", "What the chains did", html)
}

/// The lines about the temperature, which all kinds of data share.
pub(super) fn temperatures(seen: &Behaviour) -> Vec<[String; 2]> {
    let injected = seen.effective_temperature_times_n;
    let found = seen.temperature.as_ref();
    let share =
        found.map_or_else(|| number_or_nothing(None), |t| percent(t.clipped_sampling_share));
    let total = match found {
        Some(t) if !t.valid => "not valid, too many steps were clipped".to_owned(),
        found => number_or_nothing(found.map(|t| t.total)),
    };
    let measured = seen.measured.map_or_else(
        || number_or_nothing(None),
        |of| format!("{} ± {}", number(of.value), number(of.error)),
    );
    [
        (
            "Temperature asked for, times N",
            number_or_nothing(injected.map(|_| seen.temperature_times_n)),
        ),
        ("Temperature of the injected noise at the end, times N", number_or_nothing(injected)),
        (
            "Temperature that mini-batches add, about, times N",
            number_or_nothing(found.map(|t| t.minibatch)),
        ),
        ("Temperature of the samples, about, times N", total),
        ("Temperature measured from the samples, times N", measured),
        ("Clipped share of the sampling steps", share),
    ]
    .map(|(name, value)| [name.to_owned(), value])
    .to_vec()
}

/// Warnings as a list, or that there are none.
pub(super) fn warned(warnings: &[String]) -> String {
    if warnings.is_empty() {
        return paragraph("Nothing unusual was noticed.");
    }
    let worded: Vec<String> = warnings.iter().map(|w| format!("Warning: {w}")).collect();
    bullets("warnings", &worded)
}

/// How many steps were clipped, in a sentence.
pub(super) fn clipping(results: &[ChainResult], config: &Config, rows: usize) -> String {
    let records = results.iter().flat_map(|r| &r.records);
    let clipped: u64 = records.map(|r| r.clipped_steps).sum();
    let steps = steps_done(results, config, rows);
    match (config.method.clip, clipped) {
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

/// What deserves attention, in words.
pub(super) fn warnings(run: &TableRun<'_>, evaluation: &Evaluation) -> Vec<String> {
    let seen = &evaluation.behaviour;
    let mut found = Vec::new();
    found.extend(unfinished(run.results, &run.info.config));
    found.extend(of_samples(
        &evaluation.convergence,
        [(&evaluation.posterior).into(), (&evaluation.last).into()],
        &evaluation.blown_up,
        &run.info.config,
        seen.adds_noise(),
    ));
    found.extend(no_better(evaluation));
    found.extend(wrong_coverage(evaluation));

    let members = evaluation.posterior.members;
    if members == 1 {
        found.push(
            "the posterior is a single sample, so it says nothing about what is unknown of the \
             weights; let pruning end earlier (`prune.freeze_after_epochs`), or take more samples \
             a cycle or more chains."
                .into(),
        );
    } else if let (Some(difference), Some(spread)) = (seen.disagreement, target_spread(run))
        && spread > 0.0
        && difference < COPIES * spread
    {
        found.push(format!(
            "the {members} samples of the posterior are nearly copies of each other: they differ by \
             {} of the spread of the target; uncertainty about the weights is not \
             represented. Try a higher temperature, more cycles or more chains.",
            percent(difference / spread)
        ));
    }
    let steps = steps_done(run.results, &run.info.config, run.data.train_rows);
    found.extend(of_chains(seen, steps, run.data.classes));
    found
}

/// Warnings about chains that are left out, samples that do not agree, and an average that is worse
/// than the last samples.
pub(super) fn of_samples(
    convergence: &Convergence,
    [posterior, last]: [Quality; 2],
    blown_up: &[u32],
    config: &Config,
    adds_noise: bool,
) -> Vec<String> {
    let left_out = |chain: &u32| {
        format!(
            "chain {chain} blew up and is left out of every average; lower `schedule.step_size`."
        )
    };
    let mut found: Vec<String> = blown_up.iter().map(left_out).collect();
    if adds_noise && convergence.agreed() == Some(false) {
        found.push(format!("the samples have not converged: {}.", convergence.sentence()));
    }
    let worse = convergence.worse_than_last(posterior, last, &config.cycles());
    found.extend(worse.map(|said| said + "."));
    found
}

/// Warnings about temperature, clipping and loss, which all kinds of data share; `classes` is 0 for
/// a regression.
pub(super) fn of_chains(seen: &Behaviour, steps: u64, classes: usize) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(effective) = seen.effective_temperature_times_n {
        let ratio = effective / seen.temperature_times_n;
        if ratio.is_finite() && !(1.0 / FAR..=FAR).contains(&ratio) {
            let (side, effect) =
                if ratio < 1.0 { ("lower", "too narrow") } else { ("higher", "too wide") };
            found.push(format!(
                "the noise at the end had temperature {} / N, {side} than the {} / N asked for, so \
                 the samples are spread {effect}ly; `method.noise = \"exact\"` has the temperature \
                 asked for.",
                number(effective),
                number(seen.temperature_times_n)
            ));
        }
    }
    if let Some(temperature) = &seen.temperature {
        if !temperature.valid {
            found.push(format!(
                "{} of the sampling steps were clipped, so the temperature of the samples is not \
                 known; lower `schedule.step_size` or raise `method.clip`.",
                percent(temperature.clipped_sampling_share)
            ));
        } else if temperature.total > FAR * temperature.injected.max(temperature.asked_for) {
            found.push(format!(
                "mini-batches add about {} / N to the temperature, beside the {} / N asked for, so the \
                 samples are spread too widely; larger batches (`train.batch`), smaller steps or a \
                 smaller `method.beta1` lower it.",
                number(temperature.minibatch),
                number(temperature.asked_for)
            ));
        }
    }
    let steps = steps as f64;
    if steps > 0.0 && seen.clipped_steps as f64 > CLIPPED * steps {
        found.push(format!(
            "{} of all steps were clipped, which changes what the chain samples from; lower \
             `schedule.step_size` or raise `method.clip`.",
            percent(seen.clipped_steps as f64 / steps)
        ));
    }
    if seen.blew_up(classes) {
        found.push(format!(
            "the loss blew up on the way: {} after the first tenth of the run, against {} at the \
             end; samples taken near the blow-up are from another place. Lower \
             `schedule.step_size`.",
            number(seen.largest_loss),
            number(seen.final_loss)
        ));
    }
    found
}

/// Chains that are missing or not at their end.
pub(super) fn unfinished(results: &[ChainResult], config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    let (there, wanted) = (results.len(), config.chains);
    if there < wanted {
        found.push(format!("only {there} of {} gave results so far.", plural(wanted, "chain")));
    }
    let epochs = config.train.epochs;
    let behind: Vec<String> = results
        .iter()
        .filter(|result| !has_ended(config, result))
        .map(|r| (r.chain, r.records.last().map_or(0, |record| record.epoch + 1)))
        .map(|(chain, done)| format!("chain {chain} has done {}", count(done)))
        .collect();
    if !behind.is_empty() {
        found.push(format!(
            "the run is not finished: of {}, {}; go on with `thinfer train config.toml --resume` in its folder.",
            plural(epochs, "epoch"),
            listed(&behind, 4)
        ));
    }
    found
}

/// A network that a constant beats has learned nothing.
fn no_better(evaluation: &Evaluation) -> Option<String> {
    let (ours, constant) = (&evaluation.posterior, &evaluation.baseline);
    let (worse, baseline) = match evaluation.task {
        Task::Regression => (ours.mse? >= constant.mse?, "the mean of the training rows"),
        Task::Classification => (ours.accuracy? <= constant.accuracy?, "the most frequent class"),
    };
    worse.then(|| format!("on the test rows the posterior is no better than {baseline}."))
}

/// Intervals that hold far more or fewer rows than they say, beyond what chance explains.
fn wrong_coverage(evaluation: &Evaluation) -> Option<String> {
    let covered = evaluation.posterior.coverage90?;
    let chance = 3.0 * (LEVEL * (1.0 - LEVEL) / (evaluation.rows.2.max(1) as f64)).sqrt();
    let off = covered - LEVEL;
    let words = if off < 0.0 { "narrow: the network is too sure" } else { "wide" };
    (off.abs() > MISCOVERED.max(chance)).then(|| {
        format!(
            "the {} intervals hold {} of the test rows, so they are too {words}. Either the \
             network has not learned enough, or `model.noise_sigma` is wrong; with \
             `model.noise = \"learned\"` it is learned.",
            level(LEVEL),
            percent(covered)
        )
    })
}

/// The standard deviation of the target on the test rows in the user's units; of classes the mean
/// of √(p(1 − p)) over them.
fn target_spread(run: &TableRun<'_>) -> Option<f64> {
    let targets = run.data.test.targets();
    if targets.is_empty() {
        return None;
    }
    let n = targets.len() as f64;
    Some(match run.data.task {
        Task::Regression => {
            let mean = targets.iter().map(|y| f64::from(*y)).sum::<f64>() / n;
            let squares = targets.iter().map(|y| (f64::from(*y) - mean).powi(2));
            (squares.sum::<f64>() / n).sqrt() * run.data.schema.target_scale().1
        }
        Task::Classification => {
            let classes = run.data.classes.max(1);
            let share = |k: usize| targets.iter().filter(|y| **y as usize == k).count() as f64 / n;
            (0..classes).map(|k| (share(k) * (1.0 - share(k))).sqrt()).sum::<f64>() / classes as f64
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report and the terminal ask the same rule, so they cannot contradict each other.
    #[test]
    fn a_loss_below_that_of_a_guess_is_no_blow_up() {
        let told = |largest_loss: f64, classes: usize| {
            let seen = Behaviour {
                effective_temperature_times_n: None,
                temperature_times_n: 1.0,
                temperature: None,
                measured: None,
                tau_mean: None,
                tau_sd: None,
                disagreement: None,
                clipped_steps: 0,
                largest_loss,
                final_loss: 0.09,
            };
            assert_eq!(of_chains(&seen, 100, classes).len(), usize::from(seen.blew_up(classes)));
            seen.blew_up(classes)
        };
        assert!(!told(0.5133, 2));
        assert!(told(0.75, 2) && told(0.5133, 0));
    }
}
