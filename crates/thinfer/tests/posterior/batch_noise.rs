//! Mini-batch noise that is accounted for: Bayesian linear regression through the whole program,
//! asked for the temperature 1, direction by direction.

use std::sync::atomic::AtomicBool;

use thinfer::config::Config;
use thinfer::data::Bundle;
use thinfer::evaluate::{Temperature, evaluate};
use thinfer::experiment::chain_specs;
use thinfer::posterior::Snapshot;
use thinfer::train::{Setting, Silent, run_chains};
use thinfer_engine::{Network, Plan};

/// How far a measured temperature may be from 1, besides four standard errors.
const ALLOWED: f64 = 0.05;
const CHAINS: usize = 2;
/// A cycle has at most so many samples.
const MOST_EPOCHS: usize = 100_000;
/// Parts of a chain whose spread gives the standard error.
const BLOCKS: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Course {
    Constant,
    /// Cycles of ten epochs, with a sample at the end of each.
    Cyclical,
    /// The step size grows during the first half, and samples are taken from a fifth on.
    WarmUp,
}

const COURSES: [Course; 3] = [Course::Constant, Course::Cyclical, Course::WarmUp];

#[derive(Clone, Copy, Debug)]
struct Cell {
    rows: usize,
    batch: usize,
    beta1: f64,
    course: Course,
}

/// Temperatures in units of 1/N.
#[derive(Debug)]
struct Found {
    /// The mean over directions.
    mean: f64,
    error: f64,
    /// Along the principal directions of the curvature, the flattest first.
    directions: Vec<f64>,
    /// The standard error of one of them, about.
    of_one: f64,
    told: Temperature,
    rows_a_step: f64,
}

impl Found {
    /// The direction furthest from 1.
    fn worst(&self) -> f64 {
        let further = |a: f64, b: f64| if (b - 1.0).abs() > (a - 1.0).abs() { b } else { a };
        self.directions.iter().copied().fold(1.0, further)
    }
}

impl Cell {
    /// Trains for about so many steps a chain.
    fn measure(self, rule: &str, steps: usize, more: &[&str]) -> Found {
        let Self { rows, batch, beta1, course } = self;
        // Whole cycles.
        let epochs = (steps / rows.div_ceil(batch)).min(MOST_EPOCHS).next_multiple_of(10 * BLOCKS);
        let mut settings = [
            "data.columns=5",
            "data.validation_rows=10",
            "data.test_rows=10",
            "model.hidden=[]",
            "method.kind=sghmc",
            "method.clip=none",
            "prior.weight_decay=0.02",
            "schedule.eta.value=0",
            "schedule.step_size.value=0.05",
        ]
        .map(str::to_owned)
        .to_vec();
        settings.extend([
            format!("data.train_rows={rows}"),
            format!("train.batch={batch}"),
            format!("method.beta1={beta1}"),
            format!("method.batch_noise={rule}"),
            format!("chains={CHAINS}"),
            format!("train.epochs={epochs}"),
        ]);
        match course {
            Course::Cyclical => {
                settings.push(format!("schedule.step_size.cycles={}", epochs / 10));
                settings.push("train.samples_per_cycle=1".into());
            }
            Course::Constant | Course::WarmUp => {
                settings.push("schedule.step_size.shape=constant".into());
                settings.push(format!("train.samples_per_cycle={epochs}"));
            }
        }
        if course == Course::WarmUp {
            settings.push(format!("schedule.step_size.warm_up_epochs={}", epochs / 2));
        }
        settings.extend(more.iter().map(|setting| (*setting).to_owned()));
        let config = Config::parse("", &settings).unwrap();
        let data = Bundle::load(&config.data, config.seed).unwrap();
        let specs = chain_specs(&config, &data).unwrap();
        let network = specs[0].network.clone();
        let stop = AtomicBool::new(false);
        let setting = Setting::in_memory(&stop, &Silent, 2);
        let results = run_chains(specs, &data.train, &setting).unwrap();
        let told = evaluate(&config, &network, &data, &results).unwrap().behaviour.temperature;
        let rows_a_step = results.iter().flat_map(|r| &r.records).filter_map(|r| r.rows_a_step);
        let (sum, count) = rows_a_step.fold((0.0, 0.0), |(sum, n), rows| (sum + rows, n + 1.0));

        let posterior = Posterior::of(&network, &data, config.prior.weight_decay);
        // One list of temperatures, a direction each, for every block.
        let mut blocks: Vec<Vec<f64>> = Vec::new();
        for result in &results {
            let samples = &result.snapshots[result.snapshots.len() / 5..];
            let size = samples.len() / BLOCKS;
            blocks.extend(samples.chunks_exact(size).map(|block| posterior.temperatures(block)));
        }
        let n = blocks.len() as f64;
        let d = blocks[0].len();
        let directions: Vec<f64> =
            (0..d).map(|i| blocks.iter().map(|block| block[i]).sum::<f64>() / n).collect();
        let error = |values: Vec<f64>| {
            let mean = values.iter().sum::<f64>() / n;
            (values.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt()
        };
        let mean_of = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let of_each = (0..d).map(|i| error(blocks.iter().map(|block| block[i]).collect()));
        Found {
            mean: mean_of(&directions),
            error: error(blocks.iter().map(|block| mean_of(block)).collect()),
            of_one: of_each.fold(0.0, f64::max),
            directions,
            told: told.unwrap(),
            rows_a_step: if count > 0.0 { sum / count } else { batch as f64 },
        }
    }
}

/// The normal posterior of a network without hidden layers: mean, and principal directions of the
/// curvature with their curvatures.
struct Posterior {
    rows: f64,
    mean: Vec<f64>,
    directions: Vec<(f64, Vec<f64>)>,
}

impl Posterior {
    fn of(network: &Network, data: &Bundle, wd: f64) -> Self {
        let rows: Vec<u32> = (0..data.train.rows() as u32).collect();
        let mut plan = Plan::new(network, rows.len()).unwrap();
        let d = network.params().len();
        let mut slope = |weights: &[f32]| -> Vec<f64> {
            let mut gradient = vec![0.0; d];
            plan.gradient_at(weights, &mut [], &data.train, &rows, &mut gradient).unwrap();
            gradient.iter().zip(weights).map(|(g, w)| f64::from(*g) + wd * f64::from(*w)).collect()
        };
        // The loss is quadratic: H eᵢ is a difference of gradients.
        let at_zero = slope(&vec![0.0; d]);
        let h: Vec<Vec<f64>> = (0..d)
            .map(|i| {
                let mut unit = vec![0.0; d];
                unit[i] = 1.0;
                slope(&unit).iter().zip(&at_zero).map(|(a, b)| a - b).collect()
            })
            .collect();
        let directions = principal(h);
        let mut mean = vec![0.0; d];
        for (curvature, direction) in &directions {
            let along: f64 = direction.iter().zip(&at_zero).map(|(e, g)| e * g).sum();
            mean.iter_mut().zip(direction).for_each(|(m, e)| *m -= e * along / curvature);
        }
        Self { rows: rows.len() as f64, mean, directions }
    }

    /// N λ times the mean of (e·(w − μ))² in every principal direction e.
    fn temperatures(&self, samples: &[Snapshot]) -> Vec<f64> {
        let along = |sample: &Snapshot, direction: &[f64]| -> f64 {
            let away = sample.weights.iter().zip(&self.mean).map(|(w, m)| f64::from(*w) - m);
            away.zip(direction).map(|(a, e)| a * e).sum()
        };
        let temperature = |(curvature, direction): &(f64, Vec<f64>)| {
            let squares = samples.iter().map(|sample| along(sample, direction).powi(2));
            self.rows * curvature * squares.sum::<f64>() / samples.len() as f64
        };
        self.directions.iter().map(temperature).collect()
    }
}

/// Eigenvalues and eigenvectors of a symmetric matrix by Jacobi's rotations, the smallest first.
fn principal(mut a: Vec<Vec<f64>>) -> Vec<(f64, Vec<f64>)> {
    let d = a.len();
    let mut e: Vec<Vec<f64>> =
        (0..d).map(|i| (0..d).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    for _ in 0..30 {
        for p in 0..d {
            for q in p + 1..d {
                let angle = 0.5 * (2.0 * a[p][q]).atan2(a[q][q] - a[p][p]);
                let (s, c) = angle.sin_cos();
                for row in a.iter_mut().chain(&mut e) {
                    (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
                }
                for k in 0..d {
                    (a[p][k], a[q][k]) = (c * a[p][k] - s * a[q][k], s * a[p][k] + c * a[q][k]);
                }
            }
        }
    }
    let mut all: Vec<(f64, Vec<f64>)> =
        (0..d).map(|i| (a[i][i], e.iter().map(|row| row[i]).collect())).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

/// Compares with 1; returns what was found.
fn check(cell: Cell, steps: usize, more: &[&str]) -> Found {
    let found = cell.measure("account", steps, more);
    let words = format!("{cell:?}, {more:?}: {found:.3?}");
    assert!((found.mean - 1.0).abs() < ALLOWED + 4.0 * found.error, "{words}");
    assert!((found.worst() - 1.0).abs() < 0.1 + 5.0 * found.of_one, "{words}");
    assert!((found.told.total - 1.0).abs() < 0.01, "{words}");
    found
}

/// A part of the grid below, where ignoring the noise is far off.
#[test]
fn the_measured_temperature_is_the_one_asked_for() {
    let cell = |rows, batch, beta1, course| Cell { rows, batch, beta1, course };
    for (cell, ignored) in [
        (cell(200, 8, 0.1, Course::Constant), 1.1),
        (cell(200, 32, 0.9, Course::WarmUp), 1.2),
        (cell(1000, 32, 0.9, Course::Constant), 3.0),
        (cell(200, 8, 0.9, Course::Cyclical), 0.0),
    ] {
        let found = check(cell, 100_000, &[]);
        assert!(found.error < 0.04, "{cell:?}: {found:?}");
        let without = cell.measure("ignore", 20_000, &[]);
        assert!(without.mean > ignored, "{cell:?}, ignored: {without:?}");
    }
}

/// With cSGHMC and cSGLD, and while τ learns.
#[test]
fn other_samplers_account_for_it_too() {
    let cell = Cell { rows: 200, batch: 8, beta1: 0.9, course: Course::Constant };
    let half = "schedule.step_size.value=0.025";
    check(cell, 100_000, &["method.kind=csghmc", half]);
    check(cell, 100_000, &["method.kind=csgld", half]);
    check(cell, 100_000, &["schedule.eta.value=0.1"]);
}

/// The whole grid as a table; `results/inference/temperature.md` has its output.
#[test]
#[ignore = "takes minutes"]
#[expect(clippy::print_stdout, reason = "the table is what it is for")]
fn the_grid_of_measured_temperatures() {
    println!("| N | B | β₁ | step size | T | worst direction | rows a step | T, ignored |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut off = Vec::new();
    for rows in [200, 1000] {
        for batch in [8, 32] {
            for beta1 in [0.1, 0.9] {
                for course in COURSES {
                    let cell = Cell { rows, batch, beta1, course };
                    let found = cell.measure("account", GRID_STEPS, &[]);
                    let ignored = cell.measure("ignore", GRID_STEPS / 4, &[]);
                    println!(
                        "| {rows} | {batch} | {beta1} | {course:?} | {:.3} ± {:.3} | {:.3} ± {:.3} | {:.0} | {:.2} ± {:.2} |",
                        found.mean,
                        found.error,
                        found.worst(),
                        found.of_one,
                        found.rows_a_step,
                        ignored.mean,
                        ignored.error
                    );
                    if (found.mean - 1.0).abs() > ALLOWED + 2.0 * found.error {
                        off.push((cell, found));
                    }
                }
            }
        }
    }
    assert!(off.is_empty(), "{off:?}");
}

/// Steps of a chain of the grid.
const GRID_STEPS: usize = 600_000;
