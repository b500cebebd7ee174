//! `thinfer diagnose`: whether the samples of a run can be used.

use std::path::PathBuf;

use thinfer::diagnose::{ChainTrace, Diagnosis, Stretch, diagnose};
use thinfer::evaluate::Agreement;
use thinfer::metrics::Pit;

use crate::context::Context;
use crate::device::DeviceArgs;
use crate::sparkline::{range, sparkline};
use crate::summary::temperature;
use crate::text_table::{align, number, percent};
use crate::{evaluated_run, run_folder, summary};

/// Blocks of a trace, before and after the end of the burn-in.
const WIDTHS: (usize, usize) = (12, 44);
/// Chains whose traces are shown; the JSON has all of them.
const SHOWN: usize = 8;

/// Say whether to believe a run, and what to do where not
#[derive(clap::Args)]
#[command(after_help = "\
The first line is the answer. --json has every sample; docs/metrics.md says
what each number means.

Examples:
  thinfer diagnose runs/example1
  thinfer diagnose runs/example1 --json | jq .verdict")]
pub(crate) struct Args {
    /// The folder of the run
    run: PathBuf,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<()> {
    let chosen = args.device.choose()?;
    let run = run_folder::open(&args.run, context)?;
    if run.info.images().is_ok() {
        chosen.tell(context);
    }
    let evaluated = run.evaluate(&[], chosen.device)?;
    let found = diagnose(&run, &evaluated);
    let json = summary::to_json(&args.run, serde_json::to_value(&found)?, &[]);
    context.result(&json, || to_text(&found))?;
    evaluated_run::check(&run, &evaluated)
}

fn to_text(found: &Diagnosis) -> String {
    let mut parts = vec![verdict(found)];
    if found.behaviour.adds_noise() {
        parts.push(agreement(found));
    }
    let trace =
        |name: &str, values: fn(&ChainTrace) -> Option<&[f64]>| traces(&found.traces, name, values);
    parts.push(trace("log-likelihood of the test rows", |t| Some(&t.samples.log_likelihood)));
    parts.push(trace("logarithm of the noise", |t| t.samples.log_sigma.as_deref()));
    parts.push(drift(&found.drift));
    parts.push(format!("{}\n{}\n", temperature(&found.behaviour), clipped(found)));
    parts.extend(found.pit.as_ref().map(pit));
    parts.extend(found.calibration.as_ref().map(|of| {
        format!(
            "calibration error: {} (chance alone leaves about {})\n",
            number(of.ece),
            number(of.by_chance)
        )
    }));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn verdict(found: &Diagnosis) -> String {
    let Some(verdict) = &found.verdict else { return String::new() };
    let more: Vec<String> = verdict.more.iter().map(|more| format!("  also: {more}\n")).collect();
    format!("{}\n{}", verdict.sentence, more.concat())
}

fn agreement(found: &Diagnosis) -> String {
    let of = &found.agreement;
    let row = |name: &str, of: Option<Agreement>| {
        let cell = |value: Option<f64>, decimals: usize| {
            value.map_or_else(|| "-".to_owned(), |v| format!("{v:.decimals$}"))
        };
        vec![
            format!("  {name}"),
            cell(of.map(|a| a.r_hat), 3),
            cell(of.and_then(|a| a.bulk_ess), 0),
            cell(of.and_then(|a| a.tail_ess), 0),
        ]
    };
    let title = match of.chains {
        1 => format!("1 chain of {} samples", of.samples),
        chains => format!("{chains} chains of {} samples", of.samples),
    };
    let mut rows =
        vec![[title.as_str(), "R-hat", "ESS, bulk", "ESS, tails"].map(str::to_owned).to_vec()];
    rows.push(row("predictions, worst 5 %", of.predictions));
    rows.push(row("log-likelihood", of.log_likelihood));
    if of.log_sigma.is_some() {
        rows.push(row("logarithm of the noise", of.log_sigma));
    }
    align(&rows)
}

/// A line for each chain: what is not compared, `|`, and what is.
fn traces(all: &[ChainTrace], name: &str, values: fn(&ChainTrace) -> Option<&[f64]>) -> String {
    let known: Vec<(&ChainTrace, &[f64])> =
        all.iter().filter_map(|trace| Some((trace, values(trace)?))).collect();
    let pick = |trace: &ChainTrace, values: &[f64], compared: bool| -> Vec<f64> {
        let each = trace.compared.iter().zip(values);
        each.filter(|(is, _)| **is == compared).map(|(_, value)| *value).collect()
    };
    if known.is_empty() {
        return String::new();
    }
    let compared = known.iter().flat_map(|(trace, values)| pick(trace, values, true));
    let (low, high) = range(compared);
    let mut text = format!(
        "{name}, from {} to {}, one block a sample or several\n",
        number(low),
        number(high)
    );
    for (trace, values) in known.iter().take(SHOWN) {
        let line = |compared: bool, width: usize| {
            sparkline(&pick(trace, values, compared), (low, high), width)
        };
        let (before, after) = (line(false, WIDTHS.0), line(true, WIDTHS.1));
        let mark = if before.is_empty() { "" } else { "|" };
        text += &format!("  chain {:<3} {before}{mark}{after}\n", trace.samples.chain);
    }
    if known.len() > SHOWN {
        text += &format!("  and {} more chains; --json has all of them\n", known.len() - SHOWN);
    }
    if known.iter().any(|(trace, _)| trace.compared.contains(&false)) {
        text += "  before |: burn-in and earlier masks, which are not compared\n";
    }
    text
}

fn drift(parts: &[Stretch]) -> String {
    if parts.is_empty() {
        return String::new();
    }
    let noise = parts.iter().any(|part| part.noise.is_some());
    let mut head = vec!["means of", "epochs", "samples", "training loss", "log-likelihood"];
    head.extend(noise.then_some("noise"));
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for (at, part) in parts.iter().enumerate() {
        let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
        let name = match part.cycle {
            Some(cycle) => format!("cycle {cycle}"),
            None => format!("part {} of {}", at + 1, parts.len()),
        };
        let left_out = if part.compared == 0 { ", not compared" } else { "" };
        let mut row = vec![
            format!("  {name}{left_out}"),
            format!("{}-{}", part.first_epoch, part.last_epoch),
            part.samples.to_string(),
            cell(part.loss),
            cell(part.log_likelihood),
        ];
        row.extend(noise.then(|| cell(part.noise)));
        rows.push(row);
    }
    align(&rows)
}

fn clipped(found: &Diagnosis) -> String {
    match found.behaviour.temperature {
        Some(of) => format!(
            "clipped: {} of the steps that made samples",
            percent(of.clipped_sampling_share)
        ),
        None => format!("clipped: {} steps", found.behaviour.clipped_steps),
    }
}

fn pit(pit: &Pit) -> String {
    let counts: Vec<String> = pit.bins.iter().map(|count| format!("{count:.0}")).collect();
    let (_, high) = range(pit.bins.iter().copied());
    let head = pit.coverage.iter().map(|c| format!("{:.0} %", 100.0 * c.level));
    let held = pit.coverage.iter().map(|c| percent(c.share));
    let rows = [
        std::iter::once("intervals of".to_owned()).chain(head).collect::<Vec<_>>(),
        std::iter::once(format!("  hold of {} test rows", pit.rows)).chain(held).collect(),
    ];
    format!(
        "{}\nPIT in ten bins: {} ({}), about {:.0} each where predictions are calibrated\n  largest distance from uniform {}, p {}\n",
        align(&rows),
        sparkline(&pit.bins, (0.0, high), pit.bins.len()),
        counts.join(" "),
        pit.rows as f64 / pit.bins.len().max(1) as f64,
        number(pit.distance),
        number(pit.p_value)
    )
}
