//! The report of a run on a table.

use thinfer_core::posterior::Posterior;
use thinfer_core::train::ChainResult;
use thinfer_data::{Bundle, Result};
use thinfer_run::evaluate::Evaluation;
use thinfer_run::run::RunInfo;

use super::{behaviour, convergence, history, origin, page, prediction, summary, variables};

/// A run on a table.
#[derive(Clone, Copy)]
pub(super) struct TableRun<'a> {
    pub(super) info: &'a RunInfo,
    pub(super) data: &'a Bundle,
    pub(super) results: &'a [ChainResult],
    /// How long this call trained.
    pub(super) seconds: f64,
}

impl TableRun<'_> {
    pub(super) fn posterior(&self) -> Posterior {
        self.info.posterior(self.results)
    }
}

/// The report as the text of an HTML file. `evaluation` must be that of the same run.
pub(super) fn html(run: &TableRun<'_>, evaluation: &Evaluation) -> Result<String> {
    let warnings = behaviour::warnings(run, evaluation);
    let body = [
        summary::head(run, evaluation, warnings.len()),
        history::sections(run)?,
        variables::section_of(run, evaluation)?,
        prediction::section_of(run, evaluation.pit.as_ref())?,
        convergence::section_of(&evaluation.convergence, evaluation.behaviour.adds_noise())?,
        behaviour::section_of(run, evaluation, &warnings),
        origin::section_of(run)?,
    ];
    let title = format!("{} \u{2013} thinfer", summary::title(&run.info.config));
    Ok(page::document(&title, &body.concat()))
}
