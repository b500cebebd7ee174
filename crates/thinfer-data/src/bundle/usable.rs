//! Which rows of a table can be used, and what the user should know about its gaps.

use crate::error::{Error, Result};
use crate::table::{Missing, MissingReport, Rules, Table};

/// Columns and cells that a note names.
const NAMED: usize = 5;

/// The rows that can be used, counted from 0, and what to tell of the others.
pub(super) struct Usable {
    pub(super) rows: Vec<u32>,
    pub(super) notes: Vec<String>,
}

impl Usable {
    pub(super) fn of(table: &Table, target: &str, rules: &Rules) -> Result<Self> {
        let names: Vec<String> = table.columns.iter().map(|column| column.name.clone()).collect();
        let used = |name: &&String| name.as_str() == target || !rules.leaves_out(name);
        let mut names: Vec<String> = names.iter().filter(used).cloned().collect();
        let empty = table.missing().empty;
        names.retain(|name| !empty.contains(name));
        let empty: Vec<String> = empty.into_iter().filter(|name| used(&name)).collect();
        let mut notes = Vec::new();
        if !empty.is_empty() {
            notes.push(format!("columns without any value are not used: {}", empty.join(", ")));
        }
        let missing = table.missing_in(&names);
        let rows = match rules.missing {
            Missing::DropRows => {
                let rows = table.complete_rows_in(&names);
                notes.extend(dropped(&missing, rows.len()));
                rows
            }
            Missing::Refuse if missing.rows > 0 => return Err(refused(table, &missing)),
            Missing::Refuse => table.complete_rows_in(&names),
            Missing::Impute => {
                let of_target = [target.to_owned()];
                let without = table.missing_in(&of_target);
                notes.extend(without_target(&without, target, table.rows()));
                names.retain(|name| name != target);
                notes.extend(filled(&table.missing_in(&names), table.rows()));
                table.complete_rows_in(&of_target)
            }
        };
        Ok(Self { rows, notes })
    }
}

fn dropped(missing: &MissingReport, usable: usize) -> Option<String> {
    (missing.rows > 0).then(|| {
        format!(
            "{} with missing values {} not used, {usable} remain; by column: {}; first: {}",
            if missing.rows == 1 { "1 row".to_owned() } else { format!("{} rows", missing.rows) },
            if missing.rows == 1 { "is" } else { "are" },
            columns(missing, " and more"),
            first(missing)
        )
    })
}

fn without_target(missing: &MissingReport, target: &str, rows: usize) -> Option<String> {
    (missing.rows > 0).then(|| {
        let shown: Vec<String> = missing.first.iter().map(|(row, _)| row.to_string()).collect();
        let more = if missing.rows > shown.len() { ", ..." } else { "" };
        format!(
            "{} of {rows} rows {} a value of the target `{target}`: row {}{more}",
            missing.rows,
            if missing.rows == 1 { "is not used, without" } else { "are not used, without" },
            shown.join(", ")
        )
    })
}

fn filled(missing: &MissingReport, rows: usize) -> Option<String> {
    (missing.rows > 0).then(|| {
        format!(
            "{} in {} of {rows} rows {} filled in, and inputs say where; by column: {}; `--missing drop-rows` leaves these rows out",
            if missing.cells == 1 {
                "1 missing cell".to_owned()
            } else {
                format!("{} missing cells", missing.cells)
            },
            missing.rows,
            if missing.cells == 1 { "is" } else { "are" },
            columns(missing, " and more")
        )
    })
}

fn refused(table: &Table, missing: &MissingReport) -> Error {
    let problem = format!(
        "has {} missing cells in {} of {} rows, which `--missing refuse` does not allow; by column: {}; first: {}; fill them in, or have that done with `--missing impute`",
        missing.cells,
        missing.rows,
        table.rows(),
        columns(missing, " and more"),
        first(missing)
    );
    Error::table(&table.path, problem)
}

/// Columns with gaps, and how many.
fn columns(missing: &MissingReport, more: &str) -> String {
    let shown = missing.columns.iter().take(NAMED).map(|(name, count)| format!("{name} ({count})"));
    let shown: Vec<String> = shown.collect();
    let more = if missing.columns.len() > NAMED { more } else { "" };
    format!("{}{more}", shown.join(", "))
}

fn first(missing: &MissingReport) -> String {
    let shown = missing.first.iter().map(|(row, name)| format!("row {row} {name}"));
    shown.collect::<Vec<_>>().join(", ")
}
