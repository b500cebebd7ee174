//! `history.csv`: the records of all chains as one table, and back.

use std::fmt::Write as _;

use thinfer_core::train::Record;

/// The first column.
const CHAIN: &str = "chain";

/// A column: its name, the number of a record in it, and how a record takes it back.
struct Column {
    name: &'static str,
    of: fn(&Record) -> Option<f64>,
    set: fn(&mut Record, f64),
    /// Whether only runs that account for the noise of mini-batches have it.
    accounts: bool,
}

macro_rules! columns {
    (@of $record:ident, whole, $field:ident) => { Some($record.$field as f64) };
    (@of $record:ident, number, $field:ident) => { Some($record.$field) };
    (@of $record:ident, maybe, $field:ident) => { $record.$field };
    (@of $record:ident, accounts, $field:ident) => { $record.$field };
    (@set $record:ident, $value:ident, whole, $field:ident) => { $record.$field = $value as _ };
    (@set $record:ident, $value:ident, number, $field:ident) => { $record.$field = $value };
    (@set $record:ident, $value:ident, maybe, $field:ident) => { $record.$field = Some($value) };
    (@set $record:ident, $value:ident, accounts, $field:ident) => { $record.$field = Some($value) };
    (@accounts accounts) => { true };
    (@accounts $kind:ident) => { false };
    ($($kind:ident $field:ident,)+) => {
        &[$(Column {
            name: stringify!($field),
            of: |record| columns!(@of record, $kind, $field),
            set: |record, value| columns!(@set record, value, $kind, $field),
            accounts: columns!(@accounts $kind),
        },)+]
    };
}

/// The columns after that of the chain, in their order.
const COLUMNS: &[Column] = columns![
    whole epoch,
    number loss,
    number step_size,
    number temperature,
    maybe effective_temperature,
    maybe tau_mean,
    maybe tau_sd,
    number spike_share,
    number pruned_share,
    whole live_inputs,
    number largest_loss,
    whole clipped_steps,
    number sparsity,
    number work,
    number frozen,
    number backward,
    maybe hard_threshold,
    maybe test_accuracy,
    maybe test_nll,
    accounts batch_temperature,
    accounts rows_a_step,
];

/// The records of chains as the text of a table.
pub(crate) fn to_text<'a>(chains: impl Iterator<Item = (u32, &'a [Record])> + Clone) -> String {
    let accounts = chains.clone().flat_map(|(_, records)| records).any(|r| r.rows_a_step.is_some());
    let columns: Vec<&Column> = COLUMNS.iter().filter(|c| accounts || !c.accounts).collect();
    let mut text = CHAIN.to_owned();
    for column in &columns {
        text.push(',');
        text.push_str(column.name);
    }
    text.push('\n');
    for (chain, records) in chains {
        for record in records {
            // Text takes whatever is written to it.
            let _ = write!(text, "{chain}");
            for column in &columns {
                text.push(',');
                if let Some(value) = (column.of)(record) {
                    let _ = write!(text, "{value}");
                }
            }
            text.push('\n');
        }
    }
    text
}

/// The records of each chain in the text of a table, in the order of the text. A last line without
/// an end is left out; `None` where anything else is no such table. Columns that are not there, as
/// in tables of older versions, stay as in a network that never got smaller.
pub fn parse(text: &str) -> Option<Vec<(u32, Vec<Record>)>> {
    let (head, rows) = text.split_once('\n')?;
    let mut names = head.split(',');
    if names.next() != Some(CHAIN) {
        return None;
    }
    let columns: Vec<Option<&Column>> =
        names.map(|name| COLUMNS.iter().find(|column| column.name == name)).collect();
    if columns.first()?.is_none_or(|column| column.name != "epoch") {
        return None;
    }
    let rows = &rows[..rows.rfind('\n').map_or(0, |end| end + 1)];
    let mut chains: Vec<(u32, Vec<Record>)> = Vec::new();
    for row in rows.lines() {
        let mut cells = row.split(',');
        let chain: u32 = cells.next()?.parse().ok()?;
        let mut record = blank();
        for column in &columns {
            let cell = cells.next()?;
            if let (Some(column), false) = (column, cell.is_empty()) {
                (column.set)(&mut record, cell.parse().ok()?);
            }
        }
        if cells.next().is_some() {
            return None;
        }
        match chains.iter_mut().find(|(number, _)| *number == chain) {
            Some((_, records)) => records.push(record),
            None => chains.push((chain, vec![record])),
        }
    }
    Some(chains)
}

/// A record of which nothing is known.
fn blank() -> Record {
    Record {
        epoch: 0,
        loss: f64::NAN,
        step_size: 0.0,
        temperature: 0.0,
        effective_temperature: None,
        batch_temperature: None,
        rows_a_step: None,
        tau_mean: None,
        tau_sd: None,
        spike_share: 0.0,
        pruned_share: 0.0,
        live_inputs: 0,
        largest_loss: f64::NAN,
        clipped_steps: 0,
        sparsity: 0.0,
        work: 1.0,
        frozen: 0.0,
        backward: 1.0,
        hard_threshold: None,
        test_accuracy: None,
        test_nll: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(epoch: usize) -> Record {
        Record { epoch, loss: 0.1 + epoch as f64 / 3.0, largest_loss: 1e-7, ..blank() }
    }

    /// The first line and a row as every version before wrote them.
    #[test]
    fn the_table_is_written_as_it_always_was() {
        let whole = Record {
            live_inputs: 40,
            clipped_steps: 7,
            tau_mean: Some(0.25),
            test_nll: Some(1e-9),
            ..record(3)
        };
        let text = to_text([(2, &[whole][..])].into_iter());
        assert_eq!(
            text,
            "chain,epoch,loss,step_size,temperature,effective_temperature,tau_mean,tau_sd,spike_share,pruned_share,live_inputs,largest_loss,clipped_steps,sparsity,work,frozen,backward,hard_threshold,test_accuracy,test_nll\n\
             2,3,1.1,0,0,,0.25,,0,0,40,0.0000001,7,0,1,0,1,,,0.000000001\n"
        );
        let accounts = Record { rows_a_step: Some(64.5), ..record(0) };
        let text = to_text([(0, &[accounts][..])].into_iter());
        assert!(text.lines().next().unwrap().ends_with(",batch_temperature,rows_a_step"), "{text}");
        assert!(text.ends_with(",,64.5\n"), "{text}");
    }

    #[test]
    fn what_is_written_is_read_back() {
        let first = [record(0), Record { rows_a_step: Some(3.0), ..record(8) }];
        let second = [Record { loss: f64::INFINITY, ..record(0) }];
        let chains = vec![(0, first.to_vec()), (1, second.to_vec())];
        let text = to_text(chains.iter().map(|(chain, records)| (*chain, &records[..])));
        assert_eq!(parse(&text), Some(chains.clone()));
        // Cut off in a line, as no version leaves it.
        let cut = &text[..text.len() - 3];
        assert_eq!(parse(cut).unwrap(), [(0, first.to_vec())]);
        // A version before had fewer columns, one to come may have more.
        let other = parse("chain,epoch,loss,later\n0,4,0.5,x\n").unwrap();
        assert_eq!((other[0].1[0].epoch, other[0].1[0].loss, other[0].1[0].work), (4, 0.5, 1.0));
        for damaged in ["", "chain", "epoch,loss\n0,1\n", "chain,epoch,loss\n0,1\n"] {
            assert!(parse(damaged).is_none(), "{damaged:?}");
        }
        for damaged in ["chain,epoch,loss\n0,1,2,3\n", "chain,epoch,loss\nx,1,2\n"] {
            assert!(parse(damaged).is_none(), "{damaged:?}");
        }
        assert_eq!(parse("chain,epoch,loss\n"), Some(Vec::new()));
    }
}
