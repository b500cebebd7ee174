//! A run on images as one HTML file, as plain as that of a table: nothing is loaded, and the few
//! test images that are shown are part of the page.

mod channels;
mod course;
mod head;
mod of_run;
mod quality;
mod samples;

use std::collections::BTreeSet;

use thinfer_core::shrink::Saving;
use thinfer_core::train::ChainResult;
use thinfer_data::Result;
use thinfer_engine::Shape;
use thinfer_run::config::Config;
use thinfer_run::images::{ImageEvaluation, ImageSize, Pick};

use super::behaviour::{of_chains, of_samples, temperatures, unfinished, warned};
use super::chains::steps_done;
use super::convergence;
use super::origin::repeat;
use super::page::{self, Section, count, number, number_or_nothing, percent, section, table};
use super::summary::title;
pub(super) use of_run::of_run;

/// Members whose mutual information is below this share of the entropy are nearly copies.
const COPIES: f64 = 0.01;

/// Everything the report of a run on images shows.
pub struct ImageReport<'a> {
    /// The resolved configuration.
    pub config: &'a Config,
    /// Its evaluation.
    pub evaluation: &'a ImageEvaluation,
    /// Its chains.
    pub results: &'a [ChainResult],
    /// The shape of an image.
    pub shape: Shape,
    /// Test images to show.
    pub samples: &'a [Sample],
    /// What cutting the last sample down comes to.
    pub saving: Option<&'a Saving>,
    /// How it was made.
    pub origin: Origin<'a>,
}

/// A test image to show.
pub struct Sample {
    /// Its prediction, and why it was picked.
    pub pick: Pick,
    /// Its pixels, rows from the top, channels last.
    pub bytes: Vec<u8>,
}

/// How a run was made.
pub struct Origin<'a> {
    /// The version of the program.
    pub thinfer: &'a str,
    /// Operating system and processor family.
    pub platform: &'a str,
    /// Where it computed.
    pub device: &'a str,
    /// Cores of the machine.
    pub cores: usize,
    /// A number that changes with the training data.
    pub data_fingerprint: u32,
    /// How long it trained, where that is known.
    pub seconds: Option<f64>,
    /// What the user should know about the data.
    pub notes: &'a [String],
}

/// The report of a run on images, as the text of an HTML file.
pub fn html(report: &ImageReport<'_>) -> Result<String> {
    let warnings = warnings(report);
    let evaluation = report.evaluation;
    let mut sections = vec![head::key_figures(evaluation)];
    sections.extend(quality::sections(report)?);
    sections.extend([
        samples::section_of(report)?,
        course::section_of(report)?,
        channels::section_of(evaluation, report.saving)?,
        head::snapshots(evaluation),
    ]);
    let adds_noise = evaluation.behaviour.adds_noise();
    sections.extend(convergence::section_of(&evaluation.convergence, adds_noise)?);
    sections.extend([behaviour(report, &warnings), origin(report)?]);
    let title = format!("{} \u{2013} thinfer", title(report.config));
    Ok(page::document(&title, &head::head(report, warnings.len()), &sections))
}

fn warnings(report: &ImageReport<'_>) -> Vec<String> {
    let (evaluation, config) = (report.evaluation, report.config);
    let mut found = unfinished(report.results, config);
    found.extend(of_samples(
        &evaluation.convergence,
        [(&evaluation.posterior).into(), (&evaluation.last).into()],
        &evaluation.blown_up,
        config,
        evaluation.behaviour.adds_noise(),
    ));
    let scores = &evaluation.posterior;
    if evaluation.is_no_better_than_a_constant() {
        found.push(
            "on the test images the posterior is no better than the most frequent class.".into(),
        );
    }
    if scores.members == 1 {
        found.push(
            "the posterior is a single sample, so it says nothing about what is unknown of the \
             weights; let pruning end earlier (`prune.freeze_after_cycles`), or take more samples \
             a cycle or more chains."
                .into(),
        );
    } else if scores.mutual_information < COPIES * scores.entropy {
        found.push(format!(
            "the {} samples of the posterior are nearly copies of each other: {} of what is \
             unknown about a class comes from their disagreement. Try a higher temperature, more \
             cycles or more chains.",
            scores.members,
            percent(scores.mutual_information / scores.entropy)
        ));
    }
    // Chains may have lost the same layers.
    let emptied: BTreeSet<String> =
        evaluation.sizes.iter().filter_map(ImageSize::emptied).collect();
    found.extend(emptied.into_iter().map(|said| said + "."));
    let steps = steps_done(report.results, config, evaluation.images.0);
    found.extend(of_chains(&evaluation.behaviour, steps, evaluation.classes.len()));
    found
}

fn behaviour(report: &ImageReport<'_>, warnings: &[String]) -> Section {
    let (seen, scores) = (&report.evaluation.behaviour, &report.evaluation.posterior);
    let steps = steps_done(report.results, report.config, report.evaluation.images.0);
    let mut rows = temperatures(seen);
    rows.extend([
        ["Mean of \u{3c4} over weights at the end".to_owned(), number_or_nothing(seen.tau_mean)],
        ["Standard deviation of \u{3c4} over weights".to_owned(), number_or_nothing(seen.tau_sd)],
        [
            "Disagreement between samples, sd of a class probability".to_owned(),
            number_or_nothing(seen.disagreement),
        ],
        [
            "Mutual information between class and sample, nats".to_owned(),
            number(scores.mutual_information),
        ],
        ["Entropy of a prediction, nats".to_owned(), number(scores.entropy)],
        [
            "Clipped steps".to_owned(),
            format!("{} of {}", count(seen.clipped_steps as usize), count(steps as usize)),
        ],
        ["Largest loss after the first tenth of the run".to_owned(), number(seen.largest_loss)],
        ["Final loss".to_owned(), number(seen.final_loss)],
    ]);
    section(
        "behaviour",
        "What the chains did",
        warned(warnings) + &table(&[], &rows.into_iter().map(Vec::from).collect::<Vec<_>>()),
    )
}

fn origin(report: &ImageReport<'_>) -> Result<Section> {
    let origin = &report.origin;
    let (train, test) = report.evaluation.images;
    let mut facts = vec![
        vec!["thinfer".to_owned(), origin.thinfer.to_owned()],
        vec!["Device".to_owned(), origin.device.to_owned()],
        vec!["Platform".to_owned(), origin.platform.to_owned()],
        vec!["Cores".to_owned(), count(origin.cores)],
        vec!["Seed".to_owned(), report.config.seed.to_string()],
        vec!["Training and test images".to_owned(), format!("{}, {}", count(train), count(test))],
        vec![
            "Fingerprint of the training data".to_owned(),
            format!("{:08x}", origin.data_fingerprint),
        ],
    ];
    if let Some(seconds) = origin.seconds {
        facts.push(vec!["Seconds of training".to_owned(), number(seconds)]);
    }
    Ok(section("origin", "How it was made", repeat(&facts, origin.notes, report.config)?))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_tags, without_script};
    use super::*;
    use thinfer_core::shrink::{Leftover, Speed};
    use thinfer_run::images::imagined::{Imagined, imagined};
    use thinfer_run::images::{evaluate_images, pick};

    const SHAPE: Shape = Shape { height: 16, width: 16, channels: 1 };

    fn page(run: &Imagined, settings: &[&str], channels: usize) -> String {
        let mut all = vec!["data.kind=shapes", "model.name=lenet", "train.epochs=20", "chains=2"];
        all.extend(["schedule.step_size.cycles=2", "prune.warm_up_epochs=2"]);
        all.extend(settings);
        let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
        let config = Config::parse("", &all).unwrap();
        let evaluation = evaluate_images(&run.results()).unwrap();
        let snapshots: Vec<_> = run.results.iter().flat_map(|r| &r.snapshots).collect();
        let kept = run.rule.kept(&snapshots);
        let members: Vec<&[f64]> =
            kept.into_iter().map(|at| run.probabilities[at].as_slice()).collect();
        let shape = Shape { channels, ..SHAPE };
        let samples: Vec<Sample> = pick(&members, &run.labels, run.classes.len(), 4)
            .into_iter()
            .map(|pick| Sample {
                bytes: (0..shape.len()).map(|i| ((i * 7 + pick.image) % 256) as u8).collect(),
                pick,
            })
            .collect();
        let notes = ["two images were <skipped>".to_owned()];
        let text = html(&ImageReport {
            config: &config,
            evaluation: &evaluation,
            results: &run.results,
            shape,
            samples: &samples,
            saving: Some(&saving()),
            origin: Origin {
                thinfer: "0.1.0",
                platform: "linux x86_64",
                device: "cpu",
                cores: 2,
                data_fingerprint: 0xabc,
                seconds: Some(61.5),
                notes: &notes,
            },
        })
        .unwrap();
        check(&text);
        text
    }

    fn saving() -> Saving {
        Saving {
            chain: 0,
            epoch: 9,
            parameters: [1000, 200],
            bytes: [4000, 800],
            multiply_adds: [90_000, 30_000],
            inputs: [1, 1],
            leftovers: vec![Leftover {
                name: "conv2.weight".into(),
                masked: 25,
                of: 150,
                reason: "because of a <sum>",
            }],
            speed: vec![Speed { rows: 32, masked: 0.5, shrunk: 0.125 }],
        }
    }

    fn check(html: &str) {
        check_tags(html);
        let ids = [
            "key-figures",
            "calibration",
            "confusion",
            "samples",
            "course",
            "channels",
            "snapshots",
            "behaviour",
            "origin",
        ];
        let mut from = 0;
        for id in ids {
            let section = format!("<section id=\"{id}\">");
            from += html[from..].find(&section).unwrap_or_else(|| panic!("no {section} in order"));
        }
        let local = without_script(html);
        for outside in ["http", "<script", "<link", "@import", "url("] {
            assert!(!local.contains(outside), "the page refers to something outside: {outside}");
        }
        for source in local.split("src=").skip(1) {
            assert!(source.starts_with("\"data:image/png;base64,"), "{}", &source[..40]);
        }
        for broken in ["NaN", "\"inf", ">inf"] {
            assert!(!local.contains(broken), "{broken} in the page");
        }
    }

    #[test]
    fn a_run_on_images_has_all_its_parts() {
        let text = page(&imagined(), &[], 1);
        for part in [
            "<h1>shapes, em-mcmc</h1>",
            "held-out accuracy",
            "Test accuracy",
            "Risk and coverage",
            "equally many",
            "taken for",
            "letters",
            "conv2",
            "Sure and right",
            "Sure and wrong",
            "The samples disagree",
            "alt=\"",
            "Multiply-adds",
            "4.000 times as fast",
            "<span class=\"share\">",
            "because of a &lt;sum&gt;",
            "Accuracy against sparsity",
            "thinfer train config.toml",
            "kind = &quot;shapes&quot;",
            "&lt;skipped&gt;",
        ] {
            assert!(text.contains(part), "`{part}` is missing");
        }
        assert!(!text.contains("<b>star</b>"), "a class is not escaped");
        assert!(text.contains("&lt;b&gt;star&lt;/b&gt;"));
        assert_eq!(text.matches("src=\"data:image/png;base64,").count(), 12);
    }

    #[test]
    fn colours_and_grey_are_both_shown() {
        assert!(page(&imagined(), &[], 3).len() > page(&imagined(), &[], 1).len());
    }

    #[test]
    fn what_is_unusual_is_said_in_words() {
        let mut run = imagined();
        let same = run.probabilities[2].clone();
        run.probabilities.iter_mut().for_each(|table| table.clone_from(&same));
        run.results[1].records.truncate(5);
        let text = page(&run, &["chains=3"], 1);
        for part in [
            "only 2 of 3 chains",
            "chain 1 has done 5",
            "nearly copies",
            "nothing is left of",
            "4 warnings",
        ] {
            assert!(text.contains(part), "`{part}` is missing");
        }
    }

    /// One snapshot, no records, more classes than a table shows.
    #[test]
    fn a_run_that_just_began_has_a_page() {
        let mut run = imagined();
        run.results.truncate(1);
        run.results[0].records.clear();
        run.results[0].snapshots.truncate(1);
        run.probabilities.truncate(1);
        run.foreign.clear();
        let text = page(&run, &[], 1);
        assert!(text.contains("no history yet") && text.contains("a single sample"));

        let classes = 40;
        run.classes = (0..classes).map(|class| format!("class {class}")).collect();
        run.probabilities[0] = (0..run.labels.len() * classes)
            .map(|at| if at % classes == (at / classes) % 7 { 0.61 } else { 0.01 })
            .collect();
        let text = page(&run, &[], 1);
        assert!(text.contains("class=\"heat\""), "many classes are a picture");
    }
}
