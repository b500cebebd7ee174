//! The evaluation of a run as text and as JSON.

use std::path::Path;

use serde_json::{Map, Value, json};
use thinfer::config::{Config, MethodKind};
use thinfer::data::Task;
use thinfer::evaluate::{Behaviour, Evaluation, Inclusion, Scores};
use thinfer::registry::{Entry, find};

use crate::beside;
use crate::text_table::{align, number, percent, seconds};

/// Selected variables in the text at most; the JSON has all of them.
const SHOWN: usize = 25;

/// The evaluation of a run as one JSON object, with the folder and other `extra` fields beside it.
pub(crate) fn to_json(folder: &Path, evaluation: Value, extra: &[(&str, Value)]) -> Value {
    let mut object = Map::new();
    object.insert("run".into(), json!(folder.display().to_string()));
    object.extend(extra.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    if let Value::Object(fields) = evaluation {
        object.extend(fields);
    }
    Value::Object(object)
}

/// The evaluation of a run on so many classes (0 for a regression) as text; `trained` is how long
/// it took, where that is known.
pub(crate) fn to_text(
    evaluation: &Evaluation,
    config: &Config,
    classes: usize,
    trained: Option<f64>,
) -> String {
    let parts = [
        scores(evaluation),
        evaluation.beside.as_ref().map_or_else(String::new, beside::to_text),
        variables(evaluation),
        facts(evaluation, config.chains, trained),
        incidents(&evaluation.behaviour, classes, config.method.kind),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

fn scores(evaluation: &Evaluation) -> String {
    let heads: &[&str] = match evaluation.task {
        Task::Regression => &["MSE", "NLL", "90 % coverage"],
        Task::Classification => &["accuracy", "NLL", "ECE"],
    };
    let row = |name: String, scores: &Scores| {
        let number = |value: Option<f64>| value.map_or_else(|| "-".into(), number);
        let percent = |value: Option<f64>| value.map_or_else(|| "-".into(), percent);
        let (first, last) = match evaluation.task {
            Task::Regression => (number(scores.mse), percent(scores.coverage90)),
            Task::Classification => (percent(scores.accuracy), number(scores.ece)),
        };
        vec![name, first, number(scores.nll), last]
    };
    let (_, _, test) = evaluation.rows;
    let baseline = match evaluation.task {
        Task::Regression => "mean of the training rows",
        Task::Classification => "most frequent class",
    };
    let samples = |scores: &Scores| match scores.members {
        1 => "1 sample".to_owned(),
        many => format!("{many} samples"),
    };
    let mut rows = vec![
        std::iter::once(format!("{test} test rows"))
            .chain(heads.iter().map(|h| (*h).into()))
            .collect(),
        row(
            format!(
                "posterior ({}{})",
                samples(&evaluation.posterior),
                evaluation.convergence.label(evaluation.behaviour.adds_noise())
            ),
            &evaluation.posterior,
        ),
    ];
    if evaluation.all_samples.members != evaluation.posterior.members {
        let name = format!("with burn-in ({})", samples(&evaluation.all_samples));
        rows.push(row(name, &evaluation.all_samples));
    }
    rows.push(row("last sample alone".into(), &evaluation.last));
    rows.push(row(baseline.into(), &evaluation.baseline));
    align(&rows)
}

fn variables(evaluation: &Evaluation) -> String {
    let (selected, all) = (evaluation.selected.len(), evaluation.survival.len());
    let truth = evaluation.selection.map_or_else(String::new, |s| {
        format!(
            "; FDR {} ({} false), FNDR {} ({} missed)",
            number(s.fdr),
            s.false_discoveries,
            number(s.fndr),
            s.missed
        )
    });
    let text = format!("{selected} of {all} variables selected{truth}\n");
    if let Some(inclusion) = &evaluation.inclusion {
        return text + &probabilities(evaluation, inclusion);
    }
    if selected == 0 {
        return text;
    }
    let survival = |name: &String| evaluation.survival.get(name).copied().unwrap_or(0.0);
    let mut names: Vec<&String> = evaluation.selected.iter().collect();
    names.sort_by(|a, b| survival(b).total_cmp(&survival(a)));
    let mut rows = vec![vec!["  variable".to_owned(), "survived".into()]];
    for name in names.iter().take(SHOWN) {
        rows.push(vec![format!("  {name}"), percent(survival(name))]);
    }
    let more = match selected.saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("  and {more} more; --json has all of them\n"),
    };
    text + &align(&rows) + &more + SURVIVAL
}

/// The probabilities of variables, the most probable first.
fn probabilities(evaluation: &Evaluation, inclusion: &Inclusion) -> String {
    let mut all: Vec<(&str, f64)> = inclusion.variables().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shown = all.iter().take(SHOWN).take_while(|(_, p)| *p >= LEAST).count();
    let mut rows = vec![vec!["  variable".to_owned(), "probability".into()]];
    rows.extend(all[..shown].iter().map(|(name, p)| vec![format!("  {name}"), percent(*p)]));
    let more = match all.len() - shown {
        0 => String::new(),
        more => format!("  and {more} less probable; --json has all of them\n"),
    };
    let differ = evaluation.inclusion_difference.map_or_else(String::new, |difference| {
        let more =
            if difference > DIFFER { "; give more train.epochs, or a wider spike" } else { "" };
        format!("two chains differ by {} at most{more}\n", percent(difference))
    });
    let table = if shown == 0 { String::new() } else { align(&rows) };
    table + &more + PROBABILITY + &differ
}

/// Variables that are less probable are not shown.
const LEAST: f64 = 0.05;
/// Chains that differ by more have not mixed.
const DIFFER: f64 = 0.1;

/// What the probability of a variable is.
const PROBABILITY: &str = "\
probability: that the weights of the variable are in the slab, given the data and the prior; selected are those
above 50 %
";

/// What the share beside a variable is, and is not.
const SURVIVAL: &str = "\
survived: share of samples whose network reads the variable; no probability, and without regrowth it falls
with the length of the run
";

fn facts(evaluation: &Evaluation, chains: usize, trained: Option<f64>) -> String {
    let (size, behaviour) = (&evaluation.size, &evaluation.behaviour);
    let (whole, left) = size.multiply_adds;
    let of = if chains > 1 { format!(", mean of {chains} chains") } else { String::new() };
    let mut lines = vec![format!(
        "size{of}: {} of {} parameters left, {} of weights pruned, {} of {whole} multiply-adds a row",
        number_of(size.kept),
        size.parameters,
        percent(size.weight_sparsity.value()),
        number_of(left)
    )];
    lines.push(temperature(behaviour));
    if behaviour.adds_noise() {
        lines.push(format!("convergence: {}", evaluation.convergence.sentence()));
    }
    let several = evaluation.posterior.members > 1;
    if let Some(disagreement) = behaviour.disagreement.filter(|_| several) {
        lines.push(format!("samples differ by {} (sd of a prediction)", number(disagreement)));
    }
    if let Some(trained) = trained {
        lines.push(format!("time: {}", seconds(trained)));
    }
    lines.join("\n") + "\n"
}

/// A share of the injected temperature that changes none of its printed digits.
const UNSEEN: f64 = 0.0005;

/// How warm the chains were, as far as that is known: the noise that is injected is not all of it.
pub(crate) fn temperature(behaviour: &Behaviour) -> String {
    let Some(injected) = behaviour.effective_temperature_times_n else {
        return "temperature: none, the method adds no noise".to_owned();
    };
    let asked = number(behaviour.temperature_times_n);
    let measured = behaviour
        .measured
        .map(|measured| format!("{} ± {}", number(measured.value), number(measured.error)));
    let measured =
        measured.map(|of| format!("temperature: {of} times that of the posterior, measured"));
    let Some(found) = behaviour.temperature else {
        if let Some(measured) = measured {
            return format!("{measured} ({asked} asked for)");
        }
        return format!(
            "temperature: not known; the injected noise has {} times that of the posterior ({asked} asked for)",
            number(injected)
        );
    };
    let injected = number(found.injected);
    let minibatch = if found.minibatch < UNSEEN * found.injected {
        "next to nothing".to_owned()
    } else {
        format!("about {}", number(found.minibatch))
    };
    let rows = found
        .rows_a_step
        .map_or_else(String::new, |rows| format!(" of {} rows", number_of(rows.round())));
    let parts =
        format!("{injected} injected ({asked} asked for) and {minibatch} from mini-batches{rows}");
    if !found.valid {
        let clipped = percent(found.clipped_sampling_share);
        let told = measured.unwrap_or_else(|| "temperature: not valid".to_owned());
        return format!(
            "{told}: {clipped} of the sampling steps were clipped; without clipping {parts}"
        );
    }
    match (measured, found.minibatch == 0.0) {
        (Some(measured), true) => {
            format!(
                "{measured}: {injected} injected ({asked} asked for), nothing from mini-batches"
            )
        }
        (Some(measured), false) => format!("{measured}: {parts}"),
        (None, true) => format!(
            "temperature: {injected} times that of the posterior ({asked} asked for), all of it injected"
        ),
        (None, false) => {
            let total = number(found.total);
            format!("temperature: about {total} times that of the posterior: {parts}")
        }
    }
}

/// A count that is a mean over chains: whole where it is.
fn number_of(mean: f64) -> String {
    if mean.fract() == 0.0 { format!("{mean}") } else { format!("{mean:.1}") }
}

/// What went wrong and right again on the way; `classes` is 0 for a regression. Not every method
/// can limit its gradient.
pub(crate) fn incidents(behaviour: &Behaviour, classes: usize, method: MethodKind) -> String {
    let clipped = match behaviour.clipped_steps {
        0 => "No gradient was clipped".to_owned(),
        1 => "The gradient of 1 step was clipped".to_owned(),
        many => format!("The gradients of {many} steps were clipped"),
    };
    let (largest, last) = (number(behaviour.largest_loss), number(behaviour.final_loss));
    if behaviour.blew_up(classes) {
        let reads = |entry: Entry| entry.key_names().any(|key| key == "method.clip");
        let limit = if find(method.name()).is_some_and(reads) { " or `method.clip`" } else { "" };
        format!(
            "{clipped}, and a chain blew up on the way: its loss reached {largest} and ended at {last}; lower `schedule.step_size.value`{limit}\n"
        )
    } else {
        format!(
            "{clipped}, and no chain blew up: the largest loss was {largest}, the last one {last}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer::evaluate::{MOST_CLIPPED, Measured, Temperature};

    fn behaviour(clipped_steps: u64, largest_loss: f64) -> Behaviour {
        Behaviour {
            effective_temperature_times_n: None,
            temperature_times_n: 1.0,
            temperature: None,
            measured: None,
            tau_mean: None,
            tau_sd: None,
            disagreement: None,
            clipped_steps,
            largest_loss,
            final_loss: 1.25,
        }
    }

    /// The injected noise alone is never told as the temperature of the chain.
    #[test]
    fn the_temperature_says_what_it_is_made_of() {
        let told = |minibatch: f64, clipped_sampling_share: f64| {
            let found = Temperature {
                asked_for: 1.0,
                injected: 1.0,
                minibatch,
                total: 1.0 + minibatch,
                rows_a_step: None,
                clipped_sampling_share,
                valid: clipped_sampling_share <= MOST_CLIPPED,
            };
            temperature(&Behaviour {
                effective_temperature_times_n: Some(1.0),
                temperature: Some(found),
                ..behaviour(0, 2.5)
            })
        };
        assert_eq!(
            told(0.0, 0.0),
            "temperature: 1.000 times that of the posterior (1.000 asked for), all of it injected"
        );
        assert_eq!(
            told(12.5, 0.01),
            "temperature: about 13.50 times that of the posterior: 1.000 injected (1.000 asked for) \
             and about 12.50 from mini-batches"
        );
        assert!(
            told(3e-5, 0.0).ends_with("(1.000 asked for) and next to nothing from mini-batches")
        );
        assert_eq!(
            told(12.5, 0.25),
            "temperature: not valid: 25.0 % of the sampling steps were clipped; without clipping 1.000 \
             injected (1.000 asked for) and about 12.50 from mini-batches"
        );
        let measured = |rows_a_step: Option<f64>, minibatch: f64, clipped_sampling_share: f64| {
            let found = Temperature {
                asked_for: 1.0,
                injected: 0.75,
                minibatch,
                total: 1.0,
                rows_a_step,
                clipped_sampling_share,
                valid: clipped_sampling_share <= MOST_CLIPPED,
            };
            temperature(&Behaviour {
                effective_temperature_times_n: Some(0.75),
                temperature: Some(found),
                measured: Some(Measured { value: 1.02, error: 0.04 }),
                ..behaviour(0, 2.5)
            })
        };
        let first = "temperature: 1.020 ± 0.04000 times that of the posterior, measured: ";
        for (told, of) in [
            (
                measured(Some(63.8), 0.25, 0.0),
                "0.7500 injected (1.000 asked for) and about 0.2500 from mini-batches of 64 rows",
            ),
            (
                measured(None, 0.0, 0.0),
                "0.7500 injected (1.000 asked for), nothing from mini-batches",
            ),
            (
                measured(None, 0.25, 0.5),
                "50.0 % of the sampling steps were clipped; without clipping 0.7500 injected (1.000 \
                 asked for) and about 0.2500 from mini-batches",
            ),
        ] {
            assert_eq!(told, format!("{first}{of}"));
        }
        let unknown = Behaviour { effective_temperature_times_n: Some(1.0), ..behaviour(0, 2.5) };
        assert!(temperature(&unknown).starts_with("temperature: not known; the injected noise"));
        assert!(temperature(&behaviour(0, 2.5)).contains("adds no noise"));
    }

    #[test]
    fn clipping_and_blow_ups_are_told_in_words() {
        let kind = |name: &str| MethodKind::find(name).unwrap();
        assert_eq!(
            incidents(&behaviour(0, 2.5), 0, kind("em-mcmc")),
            "No gradient was clipped, and no chain blew up: the largest loss was 2.500, the last one 1.250\n"
        );
        assert_eq!(
            incidents(&behaviour(12, 54.0), 0, kind("em-mcmc")),
            "The gradients of 12 steps were clipped, and a chain blew up on the way: its loss \
             reached 54.00 and ended at 1.250; lower `schedule.step_size.value` or `method.clip`\n"
        );
        // Seven is more than five times 1.25, but no more than a guess among 1,100 classes.
        let told = |largest, classes, method| incidents(&behaviour(0, largest), classes, method);
        assert!(told(7.0, 0, kind("sghmc")).contains("blew up on the way"));
        assert!(told(7.0, 1100, kind("sghmc")).contains("no chain blew up"));
        for (method, limits) in [
            (kind("sghmc"), true),
            (kind("csgld"), true),
            (kind("csghmc"), true),
            (kind("cv-adam"), false),
            (kind("sgd"), false),
            (kind("dsr"), false),
        ] {
            assert_eq!(told(54.0, 0, method).contains("method.clip"), limits, "{method:?}");
        }
    }
}
