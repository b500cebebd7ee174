//! `thinfer eval --folds`: one run for each fold, and what they score together.

use serde_json::json;
use thinfer::folds::{Fold, FoldScores, Folds, Watcher, cross_validate, folds_path};
use thinfer::metrics::Spread;
use thinfer::run::{self, Control};

use super::Args;
use crate::context::Context;
use crate::progress::Progress;
use crate::text_table::{align, number, percent};
use crate::{interrupt, output, summary};

pub(super) fn run(args: &Args, folds: usize, context: &Context) -> anyhow::Result<()> {
    let info = run::read_info(&args.run, context)?;
    // Before anything is computed.
    thinfer::folds::fold_config(&info.config, 1, folds)?;
    let chosen = args.device.choose()?;
    let stop = interrupt::stop_flag(context)?;
    let progress = Progress::new(context, &chosen);
    let name = chosen.to_string();
    let control = Control { stop, observer: &progress, device: chosen.device, device_name: &name };
    let folder = folds_path(&args.run, folds);
    let watch = Watch { context, progress: &progress, folds };
    let found = cross_validate(&info.config, &folder, folds, args.force, &control, &watch);
    progress.finish();
    let found = found.map_err(|error| {
        interrupt::explain(error, || {
            format!("interrupted; the same command goes on with what is in {}", folder.display())
        })
    })?;
    let evaluation = serde_json::to_value(&found)?;
    let mut extra = vec![("folder", json!(folder.display().to_string()))];
    if let Some(out) = &args.out {
        output::check_free(out, args.force)?;
        thinfer::run::write_json(out, &evaluation)?;
        context.say(&format!("wrote {}", out.display()));
        extra.push(("out", json!(out.display().to_string())));
    }
    context.result(&summary::to_json(&args.run, evaluation, &extra), || to_text(&found))?;
    let lost: Vec<String> = found
        .folds
        .iter()
        .filter(|fold| !fold.blown_up.is_empty())
        .map(|fold| fold.fold.to_string())
        .collect();
    if !lost.is_empty() {
        anyhow::bail!(
            "chains of fold {} blew up and are left out; train the run again with a smaller `schedule.step_size.value`, and its folds with --force",
            lost.join(", ")
        );
    }
    Ok(())
}

struct Watch<'a> {
    context: &'a Context,
    progress: &'a Progress<'a>,
    folds: usize,
}

impl Watcher for Watch<'_> {
    fn begins(&self, fold: usize) {
        let text = format!("fold {fold} of {}", self.folds);
        self.progress.suspend(|| self.context.say(&text));
    }

    fn ends(&self, fold: &Fold, trained: bool) {
        if !trained {
            let text = format!("fold {} of {} is done already", fold.fold, self.folds);
            self.progress.suspend(|| self.context.say(&text));
        }
    }
}

/// A score of a table: its name, how it is shown, and where it is.
type Score = (&'static str, fn(f64) -> String, fn(&FoldScores) -> Option<f64>);

fn to_text(found: &Folds) -> String {
    let numbers = found.folds.iter().any(|fold| fold.scores.mse.is_some());
    let scores: [Score; 3] = if numbers {
        [
            ("MSE", number, |s| s.mse),
            ("NLL", number, |s| s.nll),
            ("90 % coverage", percent, |s| s.coverage90),
        ]
    } else {
        [
            ("accuracy", percent, |s| s.accuracy),
            ("NLL", number, |s| s.nll),
            ("ECE", number, |s| s.ece),
        ]
    };
    let cells = |of: &dyn Fn(&Score) -> Option<String>| -> Vec<String> {
        scores.iter().map(|score| of(score).unwrap_or_else(|| "-".into())).collect()
    };
    let mut rows = vec![vec![format!("{} folds", found.folds.len()), "test rows".to_owned()]];
    rows[0].extend(scores.iter().map(|score| score.0.to_owned()));
    rows[0].push("believe".into());
    for fold in &found.folds {
        let mut row = vec![format!("  fold {}", fold.fold), fold.test_rows.to_string()];
        row.extend(cells(&|(_, show, value)| value(&fold.scores).map(show)));
        row.push(fold.believe.clone().unwrap_or_else(|| "-".into()));
        rows.push(row);
    }
    let spread = |value: fn(&FoldScores) -> Option<f64>, baseline: bool| -> Option<Spread> {
        let of = |fold: &Fold| value(if baseline { &fold.baseline } else { &fold.scores });
        let values: Option<Vec<f64>> = found.folds.iter().map(of).collect();
        values.map(|values| Spread::of(&values))
    };
    for (name, baseline) in [("mean ± sd", false), ("a constant", true)] {
        let mut row = vec![name.to_owned(), String::new()];
        row.extend(cells(&|(_, show, value)| {
            let of = spread(*value, baseline)?;
            Some(format!("{} ± {}", show(of.mean), show(of.sd)))
        }));
        rows.push(row);
    }
    let constant = if numbers { "mean of the training rows" } else { "most frequent class" };
    format!(
        "{}\nsd: over folds, each of which tests on rows that it did not learn from; a constant: the {constant}\n",
        align(&rows)
    )
}
