//! A run that is not at its end: what its report says of that, and the report before there is a
//! sample to score.

use thinfer_data::Result;
use thinfer_run::run::{Left, Run, State, Status, in_words};

use super::axis::Axis;
use super::chains::{Chains, Course, WIDE, heights};
use super::page::{document, element, escape, figure, figures, paragraph, section};
use super::plots::Plot;
use super::summary::title;

/// What a report says of a run in this state; nothing of one that is finished.
fn sentence(state: State, status: Option<&Status>) -> Option<String> {
    let left = status.and_then(|status| status.left);
    Some(match state {
        State::Running => {
            let left =
                left.map_or_else(String::new, |left: Left| format!(", {}", in_words(Some(left))));
            format!(
                "The run is still going{left}. This is what there is so far; write the report again for more."
            )
        }
        State::Evaluating => "The run is trained and is being scored.".into(),
        State::Failed => {
            let why = status.and_then(|status| status.message.clone()).unwrap_or_default();
            format!("The run ended with an error: {why}")
        }
        State::Stopped => "The run is not finished, and no program is at work on it.".into(),
        State::Finished => return None,
    })
}

/// A report with a sentence below its title that says where the run is, unless it is finished.
pub fn saying(report: String, state: State, status: Option<&Status>) -> String {
    const TITLE: &str = "</h1>";
    let Some(text) = sentence(state, status) else { return report };
    match report.find(TITLE) {
        Some(at) => {
            let (before, after) = report.split_at(at + TITLE.len());
            format!("{before}\n{}{after}", element("p class=\"summary\"", &escape(&text)))
        }
        None => report,
    }
}

/// The report of a run that has no sample yet: the curves of its records.
pub fn of_run_without_samples(run: &Run) -> Result<String> {
    let title = title(&run.info.config);
    let chains = Chains::new(&run.results);
    let (done, epochs) = (
        run.results.iter().filter_map(|r| r.records.last()).map(|r| r.epoch + 1).max(),
        run.info.config.train.epochs,
    );
    let first = run.info.config.sample_epochs().first().map_or(epochs, |epoch| epoch + 1);
    let about = format!(
        "{} of {epochs} epochs are recorded. The first sample is taken after epoch {first}; from \
         then on there are scores.",
        done.unwrap_or(0)
    );
    let curves = if chains.are_blank() {
        paragraph("There is no record yet: the first epoch is not over.")
    } else {
        curves(&chains)?
    };
    let head = element("h1", &escape(&title)) + &paragraph(&about);
    let course = section("course", "The course of the run", curves);
    Ok(document(&format!("{title} \u{2013} thinfer"), &head, &[course]))
}

fn curves(chains: &Chains<'_>) -> Result<String> {
    let mut all = Vec::new();
    let mut add = |title: &str, courses: &[Course], axis: fn(&[f64]) -> Axis| -> Result<()> {
        let heights = heights(courses);
        // What never changed is no curve.
        if heights.iter().any(|height| *height != heights[0]) || title == LOSS {
            let mut plot: Plot = chains.plot(&format!("{title} over epochs"), axis(&heights));
            plot.marks = chains.lines(courses);
            all.push(figure(title, &plot, &chains.keys(), "")?);
        }
        Ok(())
    };
    let linear: fn(&[f64]) -> Axis = |heights| Axis::linear(heights.to_vec());
    add(LOSS, &chains.courses(|r| Some(r.loss)), |heights| Axis::spanning(heights, WIDE))?;
    add("Test accuracy", &chains.courses(|r| r.test_accuracy), linear)?;
    add("Pruned share of all parameters", &chains.courses(|r| Some(r.sparsity)), linear)?;
    add("Inputs that the network reads", &chains.courses(|r| Some(r.live_inputs as f64)), linear)?;
    Ok(figures(&all))
}

const LOSS: &str = "Training loss";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    use thinfer_core::device::Device;
    use thinfer_core::train::{Observer, Record, Silent};
    use thinfer_run::config::Config;
    use thinfer_run::run::{Control, Mode, RunObserver, open_so_far, train};

    /// Stops a run after its first record.
    struct StopsAtOnce<'a>(&'a AtomicBool);

    impl Observer for StopsAtOnce<'_> {
        fn progress(&self, _: u32, _: u64, _: u64, _: Option<&Record>) {}
        fn recorded(&self, _: u32, records: &[Record]) {
            self.0.store(!records.is_empty(), Ordering::Relaxed);
        }
        fn notice(&self, _: &str) {}
    }

    impl RunObserver for StopsAtOnce<'_> {}

    fn stopped(folder: &Path) {
        let set = ["data.columns=5", "data.train_rows=60", "data.validation_rows=10"];
        let more = ["data.test_rows=10", "train.epochs=20", "train.samples_per_cycle=1"];
        let one = ["schedule.step_size.cycles=1", "prune.warm_up_epochs=4"];
        let all: Vec<String> =
            set.iter().chain(&more).chain(&one).map(|set| (*set).to_owned()).collect();
        let stop = AtomicBool::new(false);
        let observer = StopsAtOnce(&stop);
        let control =
            Control { stop: &stop, observer: &observer, device: Device::Cpu, device_name: "cpu" };
        let config = Config::parse("", &all).unwrap();
        train(&config, folder, Mode::New, &control).map(drop).unwrap_err();
    }

    #[test]
    fn a_run_has_a_report_before_its_first_sample_and_its_first_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        stopped(&path);
        let page = || {
            let run = open_so_far(&path, &Silent).unwrap();
            assert!(run.results.iter().all(|result| result.snapshots.is_empty()));
            of_run_without_samples(&run).unwrap()
        };
        let with_checkpoint = page();
        super::super::tests::check_tags(&with_checkpoint);
        assert!(with_checkpoint.contains("1 of 20 epochs are recorded"), "{with_checkpoint}");
        fs::remove_dir_all(path.join("chain-0")).unwrap();
        assert_eq!(page(), with_checkpoint, "the table of records is enough");
        fs::remove_file(path.join("history.csv")).unwrap();
        assert!(page().contains("There is no record yet"));
    }

    #[test]
    fn a_report_says_where_the_run_is() {
        let page = || "<h1>a</h1><p>b</p>".to_owned();
        assert_eq!(saying(page(), State::Finished, None), page());
        let going = saying(page(), State::Running, None);
        assert!(going.contains("</h1>\n<p class=\"summary\">The run is still going."), "{going}");
        let stopped = saying(page(), State::Stopped, None);
        assert!(stopped.contains("no program is at work"), "{stopped}");
    }
}
