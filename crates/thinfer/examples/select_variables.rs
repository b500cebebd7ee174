//! Finds the columns of a table that matter for one of them.
//!
//! ```sh
//! cargo run --release -p thinfer --example select_variables -- TABLE.csv TARGET
//! ```
//!
//! Without arguments it simulates a table: y = 2 a − b² + noise, and six columns of noise.
#![expect(clippy::print_stdout, reason = "a table is what this program is for")]

use std::path::Path;
use std::sync::atomic::AtomicBool;

use thinfer::data::table::{Column, Table, Values};
use thinfer::engine::noise::{Key, Stream};
use thinfer::select::{Control, Options, select};
use thinfer::train::Silent;

/// 400 rows of a, b, six columns of noise and y.
fn simulated() -> Table {
    let key = Key::new(7, 0, Stream::Observation);
    let normal = |column: u64| (0..400).map(move |row| f64::from(key.normal(column, row)));
    let names = ["a", "b", "n1", "n2", "n3", "n4", "n5", "n6"];
    let mut columns: Vec<Column> = names
        .iter()
        .zip(0..)
        .map(|(name, at)| Column {
            name: (*name).to_owned(),
            values: Values::Number(normal(at).collect()),
        })
        .collect();
    let rows = normal(0).zip(normal(1)).zip(normal(100));
    let y = rows.map(|((a, b), noise)| 2.0 * a - b * b + 0.5 * noise).collect();
    columns.push(Column { name: "y".to_owned(), values: Values::Number(y) });
    Table { path: "simulated".into(), columns }
}

fn main() -> thinfer::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (table, target) = match &arguments[..] {
        [path, target] => (Table::read(Path::new(path))?, target.as_str()),
        _ => (simulated(), "y"),
    };
    let stop = AtomicBool::new(false);
    let control = Control { stop: &stop, observer: &Silent };
    let found = select(&table, target, &Options::default(), &control)?;
    println!("{}", found.summary);
    println!("{:<12}{:>10}{:>16}", "variable", "frequency", "relative effect");
    for effect in &found.effects {
        println!("{:<12}{:>10.2}{:>16.3}", effect.name, effect.frequency, effect.relative_effect);
    }
    Ok(())
}
