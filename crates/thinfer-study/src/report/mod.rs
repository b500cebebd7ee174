//! A run as one HTML file: what came out, how it got there, and how to repeat it.
//!
//! The page needs nothing but itself: styles and plots are inline, and nothing is loaded. Plots
//! take their colours from the style sheet, so they follow light and dark schemes.

mod axis;
mod behaviour;
mod chains;
pub mod comparison;
mod convergence;
mod curves;
mod drawing;
mod effects;
pub mod figures;
mod frozen;
mod history;
pub mod images;
mod of_table;
mod origin;
mod page;
mod plots;
mod points;
mod prediction;
mod raster;
mod selection;
mod summary;
mod unfinished;
mod variables;

use thinfer_data::{Data, Error, Result};
use thinfer_run::evaluated::Evaluated;
use thinfer_run::run::Run;

use self::of_table::TableRun;
use crate::select::Selected;

/// The report of a run, as the text of an HTML file. `evaluated` must be that of the same run, and
/// so must `selection`, where its variables were selected.
pub fn of_run(run: &Run, evaluated: &Evaluated, selection: Option<&Selected>) -> Result<String> {
    let Run { info, data, results, seconds } = run;
    match (data, evaluated) {
        (Data::Table(data), Evaluated::Table(found)) => {
            let run = TableRun { info, data, results, seconds: *seconds };
            // A file of another run may lie in the folder.
            let selection = selection.filter(|found| found.selected == data.names);
            of_table::html(&run, found, selection)
        }
        (Data::Images(data), Evaluated::Images(found)) => images::of_run(run, data, found),
        _ => Err(Error::Data("the evaluation is of another run; evaluate this one".into())),
    }
}

pub use self::unfinished::{of_run_without_samples, saying};

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use thinfer_core::device::Device;
    use thinfer_core::train::Silent;
    use thinfer_run::config::Config;
    use thinfer_run::evaluate::{Evaluation, Temperature};
    use thinfer_run::run::{Control, Mode, train};

    /// A small run: 20 epochs in 2 cycles, 200 rows, 8 columns.
    fn small_run(folder: &Path, more: &[&str]) -> (Run, Evaluation) {
        let mut settings = vec![
            "data.columns=8",
            "data.train_rows=200",
            "data.validation_rows=50",
            "data.test_rows=100",
            "train.epochs=20",
            "train.batch=50",
            "prune.warm_up_epochs=4",
            "schedule.step_size.cycles=2",
        ];
        settings.extend(more);
        let settings: Vec<String> = settings.into_iter().map(str::to_owned).collect();
        let config = Config::parse("", &settings).unwrap();
        let stop = AtomicBool::new(false);
        let control =
            Control { stop: &stop, observer: &Silent, device: Device::Cpu, device_name: "cpu" };
        let run = train(&config, folder, Mode::New, &control).unwrap();
        let evaluation = run.evaluate(&[], Device::Cpu).unwrap().table().unwrap().clone();
        (run, evaluation)
    }

    /// The page without its own script and policy, which must be there once, and without the name
    /// of SVG.
    pub(super) fn without_script(html: &str) -> String {
        let script = format!("<script>{}</script>\n", page::SCRIPT);
        let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"";
        assert_eq!((html.matches(&script).count(), html.matches(policy).count()), (1, 1));
        let local = html.replace(&script, "").replace(policy, "<meta content=\"");
        local.replace("xmlns=\"http://www.w3.org/2000/svg\"", "")
    }

    /// The script runs where its policy names its checksum, and says nothing of other places.
    #[test]
    fn the_policy_of_the_page_is_that_of_its_script() {
        use base64::Engine as _;
        let digest = ring::digest::digest(&ring::digest::SHA256, page::SCRIPT.as_bytes());
        let sum = base64::engine::general_purpose::STANDARD.encode(digest);
        assert!(page::POLICY.contains(&format!("script-src 'sha256-{sum}'")), "{sum}");
        for outside in ["http", "//www", "fetch", "import", "innerHTML", "</"] {
            assert!(!page::SCRIPT.contains(outside), "{outside}");
        }
    }

    /// Tags that are open, checked against every closing tag; the page must end with none.
    pub(super) fn check_tags(html: &str) {
        let html = without_script(html);
        let html = html.as_str();
        let mut open: Vec<&str> = Vec::new();
        let mut rest = html;
        while let Some(at) = rest.find('<') {
            rest = &rest[at + 1..];
            let end = rest.find('>').expect("a tag does not end");
            let (tag, after) = (&rest[..end], &rest[end + 1..]);
            rest = after;
            assert!(!tag.contains('<'), "an unescaped < in: {tag}");
            assert_eq!(tag.matches('"').count() % 2, 0, "an open attribute in: {tag}");
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
            if tag.starts_with('!') || tag.ends_with('/') || name == "meta" {
                continue;
            }
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "</{name}> closes something else");
                continue;
            }
            open.push(name);
        }
        assert!(open.is_empty(), "never closed: {open:?}");
    }

    fn check_page(html: &str) {
        check_tags(html);
        let ids = [
            "key-figures",
            "variables",
            "prediction",
            "loss",
            "schedule",
            "pruning",
            "behaviour",
            "origin",
        ];
        let mut from = 0;
        for id in ids {
            let section = format!("<section id=\"{id}\">");
            let at = html[from..].find(&section).unwrap_or_else(|| panic!("no {section} in order"));
            from += at;
        }
        let local = without_script(html);
        for outside in ["http", "//", "<script", "<link", "@import", "url(", "src="] {
            assert!(!local.contains(outside), "the page refers to something outside: {outside}");
        }
        for broken in ["NaN", "\"inf", ">inf"] {
            assert!(!local.contains(broken), "{broken} in the page");
        }
    }

    fn report(run: &Run, evaluation: &Evaluation) -> String {
        let text = of_run(run, &Evaluated::Table(Box::new(evaluation.clone())), None).unwrap();
        check_page(&text);
        text
    }

    #[test]
    fn a_regression_has_all_its_parts() {
        let folder = tempfile::tempdir().unwrap();
        let (run, evaluation) = small_run(&folder.path().join("run"), &["chains=2"]);
        let text = report(&run, &evaluation);
        for part in [
            "<h1>example1, em-mcmc</h1>",
            "held-out MSE",
            "for the mean.",
            "FNDR",
            "Multiply-adds",
            "largest epoch since the record before",
            "No step was clipped",
            "Temperature times N",
            "chain 1",
            "In 90\u{a0}% interval",
            "Calibration of intervals",
            "a sample was taken",
            "<details>",
            "kind = &quot;em-mcmc&quot;",
            "thinfer train config.toml",
        ] {
            assert!(text.contains(part), "`{part}` is missing");
        }
    }

    #[test]
    fn a_classification_has_reliability_and_confusion() {
        let folder = tempfile::tempdir().unwrap();
        let (run, evaluation) = small_run(&folder.path().join("run"), &["data.kind=example3"]);
        let text = report(&run, &evaluation);
        for part in ["held-out accuracy", "Reliability", "Confusion matrix", "Brier"] {
            assert!(text.contains(part), "`{part}` is missing");
        }
    }

    #[test]
    fn a_method_without_noise_has_no_temperature() {
        let folder = tempfile::tempdir().unwrap();
        let (run, evaluation) = small_run(&folder.path().join("run"), &["method.kind=sgd"]);
        let text = report(&run, &evaluation);
        assert!(text.contains("as sgd selects none"));
        assert!(text.contains("injects no noise"));
        assert!(text.contains("Every sample reads all 8 variables"));
        assert!(!text.contains("Mean of \u{3c4} over weights</b>"));
    }

    /// Three classes, and names that are HTML, a marker colour and a line break.
    #[test]
    fn names_of_the_user_stay_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let head = "<b>age</b>,#010001,\"a&\"\"b\"\"\",<i>kind</i>".to_owned();
        let row = |i: usize| {
            let kind = ["<u>one</u>", "two", "three"][i % 3];
            format!("{},{},{},{kind}", i % 3, (i * 7) % 11, (i * 5) % 13)
        };
        let table = [head].into_iter().chain((0..90).map(row)).collect::<Vec<_>>().join("\n");
        fs::write(&path, table).unwrap();
        let (data, target) = (format!("data.path={}", path.display()), "data.target=<i>kind</i>");
        let table = ["data.kind=table", data.as_str(), target];
        let more = [&table[..], &["method.kind=em-mcmc", "model.hidden=[4]"]].concat();
        let (run, mut evaluation) = small_run(&folder.path().join("run"), &more);
        assert_eq!(run.data.classes(), 3);
        // Not all equal, so that there are bars with names.
        evaluation.survival.insert("#010001".into(), 0.5);
        let text = report(&run, &evaluation);
        for raw in ["<b>age", "<i>kind", "<u>", "a&\"b"] {
            assert!(!text.contains(raw), "`{raw}` is not escaped");
        }
        for shown in ["&lt;b&gt;age&lt;/b&gt;", "#010001", "a&amp;&quot;b&quot;", "&lt;u&gt;one"] {
            assert!(text.contains(shown), "`{shown}` is missing");
        }
    }

    #[test]
    fn a_probability_is_called_so_only_where_it_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let more = ["prior.assignment=draw", "prior.spike_sd=0.1", "prior.sd=1.0", "chains=2"];
        let (run, evaluation) = small_run(&folder.path().join("run"), &more);
        assert_eq!(evaluation.inclusion.as_ref().unwrap().values().len(), 8);
        let text = report(&run, &evaluation);
        assert!(text.contains("Inclusion of variables") && !text.contains("Survival"), "{text}");
        assert!(text.contains("Two chains differ by"), "{text}");
        let (run, evaluation) = small_run(&folder.path().join("mode"), &[]);
        let text = report(&run, &evaluation);
        assert!(text.contains("Survival of variables") && !text.contains("Inclusion"), "{text}");
    }

    #[test]
    fn what_is_unusual_is_said_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let (mut run, mut evaluation) = small_run(&folder.path().join("run"), &["method.clip=1e6"]);
        let seen = &mut evaluation.behaviour;
        seen.disagreement = Some(1e-6);
        seen.effective_temperature_times_n = Some(0.01);
        let warm = Temperature {
            asked_for: 1.0,
            injected: 0.01,
            minibatch: 12.5,
            rows_a_step: None,
            total: 12.51,
            clipped_sampling_share: 0.0,
            valid: true,
        };
        seen.temperature = Some(warm);
        seen.clipped_steps = 40;
        seen.final_loss = 1.0;
        seen.largest_loss = 5.5;
        evaluation.posterior.members = 6;
        evaluation.posterior.coverage90 = Some(0.6);
        evaluation.posterior.mse = evaluation.baseline.mse;
        run.info.config.train.epochs = 50;
        run.info.config.chains = 4;
        let text = report(&run, &evaluation);
        for part in [
            "only 1 of 4 chains",
            "chain 0 has done 20",
            "no better than the mean",
            "nearly copies",
            "the 90\u{a0}% intervals hold 60.0\u{a0}%",
            "lower than the",
            "mini-batches add about 12.5",
            "50.0\u{a0}% of all steps were clipped",
            "blew up",
            "9 warnings",
        ] {
            assert!(text.contains(part), "`{part}` is missing");
        }
        let clipped = Temperature { clipped_sampling_share: 0.25, valid: false, ..warm };
        evaluation.behaviour.temperature = Some(clipped);
        let text = report(&run, &evaluation);
        assert!(
            text.contains("25.0\u{a0}% of the sampling steps were clipped, so the temperature")
        );
        assert!(text.contains("not valid, too many steps were clipped"));
        seen_nothing(&mut evaluation);
        evaluation.posterior.members = 1;
        assert!(report(&run, &evaluation).contains("a single sample"));
    }

    fn seen_nothing(evaluation: &mut Evaluation) {
        let seen = &mut evaluation.behaviour;
        (seen.disagreement, seen.effective_temperature_times_n) = (None, None);
        seen.temperature = None;
        (seen.clipped_steps, seen.final_loss, seen.largest_loss) = (0, f64::NAN, f64::NAN);
        evaluation.posterior.mse = Some(f64::NAN);
        (evaluation.posterior.coverage90, evaluation.baseline.mse) = (None, None);
    }

    #[test]
    fn degenerate_runs_have_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let (mut run, mut evaluation) = small_run(&folder.path().join("run"), &["chains=3"]);
        // One chain of three, with one record and nothing left.
        run.results.remove(0);
        run.results.truncate(1);
        let chain = &mut run.results[0];
        chain.records.drain(..chain.records.len() - 1);
        let record = &mut chain.records[0];
        (record.live_inputs, record.pruned_share, record.spike_share) = (0, 1.0, 1.0);
        (record.loss, record.largest_loss) = (0.0, f64::INFINITY);
        seen_nothing(&mut evaluation);
        evaluation.selected.clear();
        evaluation.survival.values_mut().for_each(|v| *v = 0.0);
        let text = report(&run, &evaluation);
        assert!(text.contains("None of the 8 variables was selected"));
        assert!(text.contains("Variables that matter and survived in no sample: x1"));
        assert!(text.contains("8 of 8 variables survived in no sample"));

        for snapshot in &mut run.results[0].snapshots {
            snapshot.weights.iter_mut().for_each(|w| *w = f32::NAN);
        }
        report(&run, &evaluation);
        run.results[0].snapshots.clear();
        run.results[0].records.clear();
        assert!(report(&run, &evaluation).contains("no samples yet"));
        run.results.clear();
        report(&run, &evaluation);
    }

    #[test]
    fn many_chains_and_records_stay_small() {
        let folder = tempfile::tempdir().unwrap();
        let (mut run, evaluation) = small_run(&folder.path().join("run"), &["data.columns=5"]);
        let record = run.results[0].records[0].clone();
        run.results[0].records = (0..5000)
            .map(|epoch| thinfer_core::train::Record {
                epoch,
                loss: 1.0 + (epoch % 7) as f64,
                ..record.clone()
            })
            .collect();
        let chain = run.results[0].clone();
        run.results = (0..40)
            .map(|number| thinfer_core::train::ChainResult { chain: number, ..chain.clone() })
            .collect();
        let text = report(&run, &evaluation);
        assert!(text.contains("the first 24 of 40 chains"));
        assert!(text.len() < 3_000_000, "{} bytes", text.len());
    }
}
