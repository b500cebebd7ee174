//! The report of a run on a table.

use thinfer_core::posterior::{Posterior, Predictive};
use thinfer_core::train::ChainResult;
use thinfer_data::{Bundle, Result};
use thinfer_run::evaluate::Evaluation;
use thinfer_run::run::RunInfo;

use super::{
    behaviour, convergence, effects, history, origin, page, prediction, selection, summary,
    variables,
};
use crate::select::Selected;

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

    /// What the posterior says about the test rows; nothing without samples, or rows to compare
    /// with.
    fn predictive(&self) -> Result<Option<Predictive>> {
        let posterior = self.posterior();
        let test = &self.data.test;
        if posterior.members.is_empty() || test.rows() == 0 || !test.has_targets() {
            return Ok(None);
        }
        posterior.predict(test).map(Some)
    }
}

/// The report as the text of an HTML file. `evaluation` must be that of the same run, and so must
/// `selection`, where its variables were selected.
pub(super) fn html(
    run: &TableRun<'_>,
    evaluation: &Evaluation,
    selection: Option<&Selected>,
) -> Result<String> {
    let warnings = behaviour::warnings(run, evaluation);
    let predictive = run.predictive()?;
    let predictive = predictive.as_ref();
    let head = summary::head(run, evaluation, predictive, selection, warnings.len());
    let mut sections = vec![summary::key_figures(run, evaluation)];
    sections.extend(selection.map(selection::section_of));
    sections.extend(effects::section_of(run, selection)?);
    sections.push(variables::section_of(run, evaluation)?);
    sections.push(prediction::section_of(run, predictive, evaluation.pit.as_ref())?);
    sections.extend(history::sections(run)?);
    let adds_noise = evaluation.behaviour.adds_noise();
    sections.extend(convergence::section_of(&evaluation.convergence, adds_noise)?);
    sections.push(behaviour::section_of(run, evaluation, &warnings));
    sections.push(origin::section_of(run)?);
    let title = format!("{} \u{2013} thinfer", summary::title(&run.info.config));
    Ok(page::document(&title, &head, &sections))
}
