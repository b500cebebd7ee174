//! Settings that make a run of a table what it is: the seed and whatever tells its rows apart.

use thinfer_data::{Error, Result};

/// Settings that a table chooses by itself.
pub(super) struct Fixed {
    /// What tells its rows apart.
    pub(super) rows: &'static [&'static str],
    /// What tells its runs apart.
    pub(super) seeds: &'static [&'static str],
    /// What tells its data apart, with the option that chooses among them.
    pub(super) data: Option<(&'static str, &'static str)>,
}

impl Fixed {
    /// Refuses a setting that would make rows or repeats the same that are shown as different ones.
    pub(super) fn check(&self, overrides: &[String]) -> Result<()> {
        for key in overrides.iter().filter_map(|text| Some(text.split_once('=')?.0.trim())) {
            let option = if self.seeds.contains(&key) {
                "--seeds"
            } else if self.rows.contains(&key) {
                "--rows"
            } else if let Some((_, option)) = self.data.filter(|(kind, _)| *kind == key) {
                option
            } else {
                continue;
            };
            let problem = format!(
                "is what tells the runs of a table apart, so it cannot be set for all of them; choose with {option}, or run a configuration by itself with `thinfer train`"
            );
            return Err(Error::config(key, problem));
        }
        Ok(())
    }
}
