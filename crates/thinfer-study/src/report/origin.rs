//! How the run was made, and how to make it again.

use thinfer_data::Result;
use thinfer_run::config::Config;

use super::of_table::TableRun;
use super::page::{Section, bullets, count, element, escape, number, paragraph, section, table};

/// The command that repeats a run.
const REPEAT: &str = "thinfer train config.toml --out again";

/// The section about the origin of the run.
pub(super) fn section_of(run: &TableRun<'_>) -> Result<Section> {
    let info = run.info;
    let (train, validation, test) = info.rows;
    let mut rows = vec![
        vec!["thinfer".to_owned(), info.thinfer.clone()],
        vec!["Platform".to_owned(), info.platform.clone()],
        vec!["Cores".to_owned(), count(info.cores)],
        vec!["Seed".to_owned(), info.config.seed.to_string()],
        vec![
            "Training, validation and test rows".to_owned(),
            format!("{}, {}, {}", count(train), count(validation), count(test)),
        ],
        vec![
            "Fingerprint of the training data".to_owned(),
            format!("{:08x}", info.data_fingerprint),
        ],
    ];
    // A run that was opened did not train in this call.
    if run.seconds > 0.0 {
        rows.push(vec!["Seconds of training".to_owned(), number(run.seconds)]);
    }
    Ok(section("origin", "How it was made", repeat(&rows, &info.notes, &info.config)?))
}

/// A table of facts, notes about the data, and what to do to have the run again.
pub(super) fn repeat(facts: &[Vec<String>], notes: &[String], config: &Config) -> Result<String> {
    let notes = match notes {
        [] => String::new(),
        notes => element("h3", "Notes about the data") + &bullets("notes", notes),
    };
    let toml = element("pre tabindex=\"0\"", &escape(&config.to_toml()?));
    let html = [
        table(&[], facts),
        notes,
        element("h3", "To repeat it"),
        paragraph(
            "Save the configuration below as `config.toml` (the run folder has it under that \
             name), then:",
        ),
        element("pre", REPEAT),
        element("details", &(element("summary", "Resolved configuration") + &toml)),
    ];
    Ok(html.concat())
}
