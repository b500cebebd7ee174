//! Whether the samples agree: R̂, effective sample sizes, and what every sample was like.

use thinfer_data::Result;
use thinfer_run::evaluate::{Agreement, Convergence, SampleTrace};

use super::axis::Axis;
use super::page::{Key, Section, figure, figures, number_or_nothing, paragraph, section, table};
use super::plots::{Ink, Mark, Plot, SERIES};

/// The section about convergence; a method that adds no noise has none.
pub(super) fn section_of(found: &Convergence, adds_noise: bool) -> Result<Option<Section>> {
    if !adds_noise || found.traces.is_empty() {
        return Ok(None);
    }
    let row = |of: &str, agreement: Option<Agreement>| {
        let cell = |value: fn(&Agreement) -> Option<f64>| {
            number_or_nothing(agreement.as_ref().and_then(value))
        };
        let cells = [cell(|a| Some(a.r_hat)), cell(|a| a.bulk_ess), cell(|a| a.tail_ess)];
        std::iter::once(of.to_owned()).chain(cells).collect::<Vec<_>>()
    };
    let head = ["", "R-hat", "ESS, bulk", "ESS, tails"].map(str::to_owned);
    let mut rows = vec![
        row("Predictions (worse for 5 % of the test rows)", found.predictions),
        row("Log-likelihood of the test rows", found.log_likelihood),
    ];
    rows.extend(found.log_sigma.map(|agreement| row("Logarithm of the noise", Some(agreement))));
    let html = table(&head.each_ref().map(String::as_str), &rows)
        + &paragraph(&format!("Convergence: {}.", found.sentence()))
        + &figures(&traces(found)?);
    Ok(Some(section("convergence", "Do the samples agree?", html)))
}

fn traces(found: &Convergence) -> Result<Vec<String>> {
    let shown = &found.traces[..found.traces.len().min(usize::from(SERIES))];
    let course = |trace: &SampleTrace, values: &[f64]| -> Vec<(f64, f64)> {
        trace.epochs.iter().map(|epoch| *epoch as f64 + 1.0).zip(values.iter().copied()).collect()
    };
    let plot = |title: &str, values: &dyn Fn(&SampleTrace) -> Vec<f64>| -> Result<String> {
        let courses: Vec<Vec<(f64, f64)>> = shown.iter().map(|t| course(t, &values(t))).collect();
        let heights: Vec<f64> =
            courses.iter().flatten().map(|p| p.1).filter(|y| y.is_finite()).collect();
        let epochs = shown.iter().flat_map(|t| &t.epochs).map(|epoch| epoch + 1);
        let last = epochs.max().unwrap_or(1) as f64;
        let mut plot = Plot::new(title, Axis::whole(1.0_f64.min(last), last), "epoch", {
            Axis::linear(heights)
        });
        let mut keys = Vec::new();
        for (at, (trace, course)) in shown.iter().zip(&courses).enumerate() {
            let ink = Ink::Series(at as u8);
            plot.marks.push(Mark::line(course, ink).with(1.0, 0.5));
            let kept = course.iter().zip(&trace.kept).filter(|(_, kept)| **kept);
            let points = kept.map(|(point, _)| *point).collect();
            plot.marks.push(Mark::Dots { points, ink, radius: 3.0 });
            keys.push(Key::new("line", ink, format!("chain {}", trace.chain)));
        }
        keys.push(Key::new("dot", Ink::Series(0), "averaged"));
        let about = "Samples in the order they were taken. Chains that have converged mix: none is above \
                     the others, and none climbs.";
        figure(title, &plot, &keys, about)
    };
    let mut all =
        vec![plot("Mean log-likelihood of the test rows", &|t| t.log_likelihood.clone())?];
    if shown.iter().any(|trace| trace.log_sigma.is_some()) {
        let values = |t: &SampleTrace| t.log_sigma.clone().unwrap_or_default();
        all.push(plot("Logarithm of the noise", &values)?);
    }
    Ok(all)
}
