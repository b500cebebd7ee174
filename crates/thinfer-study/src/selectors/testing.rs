//! Small simulated bundles for the selectors' tests.

use thinfer_data::table::Target;
use thinfer_data::{Bundle, Task};
use thinfer_run::config::Config;

/// Inputs as in the paper's examples; the target from a row and a standard normal number.
pub(super) fn bundle(
    seed: u64,
    rows: usize,
    columns: usize,
    target: impl Fn(&[f32], f32) -> f32,
) -> Bundle {
    use thinfer_engine::Dataset;
    use thinfer_engine::noise::{Key, Stream};
    let settings = [
        format!("seed={seed}"),
        format!("data.columns={}", columns.max(5)),
        format!("data.train_rows={rows}"),
        format!("data.validation_rows={}", rows / 2),
        format!("data.test_rows={}", rows / 2),
    ];
    let config = Config::parse("", &settings).unwrap();
    let mut data = Bundle::load(&config.data, config.seed).unwrap();
    let keep: Vec<usize> = (0..columns).collect();
    for (part, set) in
        [&mut data.train, &mut data.validation, &mut data.test].into_iter().enumerate()
    {
        let key = Key::new(seed, 100 + part as u32, Stream::Observation);
        let inputs = set.take_columns(&keep);
        let y = (0..inputs.rows()).map(|r| target(inputs.input(r), key.normal(r as u64, 0)));
        let y = y.collect();
        *set = Dataset::new(columns, 1, inputs.inputs().to_vec(), y).unwrap();
    }
    data.groups.truncate(columns);
    data.names.truncate(columns);
    data
}

/// The same with two classes.
pub(super) fn classes(
    seed: u64,
    rows: usize,
    columns: usize,
    target: impl Fn(&[f32], f32) -> bool,
) -> Bundle {
    let mut data = bundle(seed, rows, columns, |x, e| f32::from(u8::from(target(x, e))));
    data.task = Task::Classification;
    data.classes = 2;
    data.schema.target = Target::Classes { levels: vec!["0".into(), "1".into()] };
    data
}
