//! Opens the folder of a finished run on a table and predicts rows, with intervals.
//!
//! ```sh
//! cargo run --release -- train configs/example1.toml
//! cargo run --release -p thinfer --example load_and_predict -- runs/example1 NEW.csv
//! ```
//!
//! Without arguments it trains a small run in a temporary folder first.
#![expect(clippy::print_stdout, reason = "a table is what this program is for")]

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use thinfer::config::Config;
use thinfer::data::table::{Column, Table, Values};
use thinfer::device::Device;
use thinfer::predict::predict;
use thinfer::run::{Control, Mode, open_posterior, train};
use thinfer::train::Silent;

/// Trains y on x1 to x6 of a simulated table.
fn small_run(folder: &Path) -> thinfer::Result<()> {
    let settings = [
        "data.kind=example1",
        "data.columns=6",
        "data.train_rows=500",
        "train.epochs=200",
        "train.batch=100",
    ];
    let config = Config::parse("", &settings.map(str::to_owned))?;
    let stop = AtomicBool::new(false);
    let (observer, device) = (&Silent, Device::Cpu);
    let control = Control { stop: &stop, observer, device, device_name: "cpu" };
    train(&config, folder, Mode::New, &control).map(drop)
}

/// Three rows to predict.
fn new_rows() -> Table {
    let columns = (1..=6).map(|c| Column {
        name: format!("x{c}"),
        values: Values::Number(vec![-1.0, 0.0, 0.1 * f64::from(c)]),
    });
    Table { path: "new rows".into(), columns: columns.collect() }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let temporary = tempfile::tempdir()?;
    let (folder, rows) = if let [folder, rows] = &arguments[..] {
        (folder.clone(), Some(rows))
    } else {
        let folder = temporary.path().join("run");
        small_run(&folder)?;
        (folder, None)
    };
    let (info, posterior) = open_posterior(&folder, &Silent)?;
    let options = info.table()?.schema.encoding.read_options();
    let table = match rows {
        Some(path) => Table::read_noted(path, &options)?.0,
        None => new_rows(),
    };
    let found = predict(&info, &posterior, &table)?;
    let mut text = Vec::new();
    found.write_csv(&mut text)?;
    print!("{}", String::from_utf8(text)?);
    Ok(())
}
