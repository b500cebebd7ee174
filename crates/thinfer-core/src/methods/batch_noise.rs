//! The noise of mini-batches, measured in every step and taken out of the noise that is injected.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use thinfer_data::{Error, Result};
use thinfer_engine::Arena;
use thinfer_engine::noise::{Key, Stream};

use super::registry::{Choices, Setup};
use super::sghmc::NoiseRule;
use super::{Tick, Vitals};
use crate::prune::FIXED;

/// What a sampler does about the noise of its mini-batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchNoiseRule {
    /// Nothing: it comes on top of the injected noise.
    #[default]
    Ignore,
    /// It is measured, and that much less is injected.
    Account,
}

/// Mini-batch noise may have this share of a step's injected variance, all directions together. A
/// step that would exceed it reads more rows.
pub const MOST_SHARE: f64 = 0.25;
/// Steps over which the noise of a row is averaged.
const MEMORY: f64 = 64.0;
/// A step as small as this says nothing about the noise.
const SMALLEST: f64 = 1e-20;
/// Weights that one task looks at; sums over them are added in order.
const PIECE: usize = 1 << 14;
/// Weights whose noise is made at once.
const TILE: usize = 128;

/// What a step did, in the numbers of the arena.
///
/// Both averages are the noise of one row at a step of strength 1 in units of the injected noise:
/// that in force since the epoch began, and that seen so far in so many steps. The rest are sums
/// over the steps since the last record.
mod number {
    pub(super) const IN_FORCE: usize = 0;
    pub(super) const SEEN: usize = 1;
    pub(super) const SEEN_STEPS: usize = 2;
    pub(super) const STEPS: usize = 3;
    pub(super) const ROWS: usize = 4;
    pub(super) const SHARE: usize = 5;
    pub(super) const REMOVED: usize = 6;
    pub(super) const COUNT: usize = 7;
}

/// Accounts for the noise of mini-batches of B of N rows.
///
/// A step draws n rows without replacement, independently of other steps, and takes the gradients
/// g₁ and g₂ of their halves of n₁ and n₂ rows. Their mean g makes the step. With
///
/// b = √(n₁ n₂)/n · (g₁ − g₂),  Cov(g) = (1 − n/N) E[b bᵀ],
/// u = √(1 − n/N) β₂ Δt² b / s,
///
/// u is the noise of g in units of the injected noise, and the sampler injects
///
/// s ⊙ (ε − û (û·ε) + √(1 − |u|²) û (û·ε)),  û = u/|u|,
///
/// whose covariance is s (1 − u uᵀ) s. Together with the noise of g that is s² in every direction,
/// whatever the law of the rows and at every w. See [`Shape`] for |u| > 1.
///
/// |u|² is proportional to (1/n − 1/N) l/k². A step doubles n, from B on, until its mean is at most
/// [`MOST_SHARE`] by what was seen before the epoch began.
///
/// Deviation: paper and program inject the whole noise and take mini-batches in the order of an
/// epoch, so that their noise comes on top. Here `method.batch_noise = "account"` asks for this.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNoise {
    /// N
    pub train_rows: usize,
    /// B
    pub batch: usize,
    /// The state buffer that gets b.
    pub buffer: usize,
}

/// How the noise of a step is shaped: ε ← `across` ε + `along` u.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// The factor across u: 1 unless |u| > 1, when nothing is left along u and the rest is taken
    /// from the other directions, so that the mean over directions stays right.
    pub across: f32,
    /// The factor on u.
    pub along: f32,
    /// √(1 − n/N)
    pub finite: f32,
}

impl BatchNoise {
    /// What a configuration says of it; `None` where nothing is to be accounted for.
    pub(super) fn of(setup: &Setup<'_>, buffer: usize) -> Option<Self> {
        let (train_rows, batch) = (setup.train_rows, setup.batch);
        let accounts = setup.method.batch_noise == BatchNoiseRule::Account;
        (accounts && batch < train_rows).then_some(Self { train_rows, batch, buffer })
    }

    /// How many numbers it keeps in the arena.
    pub(super) const NUMBERS: usize = number::COUNT;

    /// Before the first step of an epoch: what was seen comes into force.
    pub(super) fn begin_epoch(arena: &mut Arena) {
        let mut numbers = arena.take_numbers();
        if let Some(seen) = numbers.get(number::SEEN).copied() {
            numbers[number::IN_FORCE] = seen;
        }
        arena.set_numbers(numbers);
    }

    /// After a record was made: its sums begin anew.
    pub(super) fn recorded(arena: &mut Arena) {
        let mut numbers = arena.take_numbers();
        numbers.iter_mut().skip(number::STEPS).for_each(|sum| *sum = 0.0);
        arena.set_numbers(numbers);
    }

    /// How many rows a step reads.
    pub fn rows(&self, arena: &Arena, tick: Tick) -> usize {
        let in_force = arena.numbers().get(number::IN_FORCE).copied().unwrap_or_default();
        let at_one_row = in_force * strength(tick);
        let all = self.train_rows;
        // Two halves need two rows.
        let mut rows = self.batch.max(2).min(all);
        while rows < all && at_one_row * (1.0 / rows as f64 - 1.0 / all as f64) > MOST_SHARE {
            rows = rows.saturating_mul(2).min(all);
        }
        rows
    }

    /// Draws the rows of a step from `all`, which has every row in order and has so again
    /// afterwards: the first places of a shuffle (Fisher-Yates).
    pub fn draw(&self, arena: &Arena, tick: Tick, key: Key, all: &mut Vec<u32>) -> Vec<u32> {
        if all.len() != self.train_rows {
            *all = (0..self.train_rows as u32).collect();
        }
        let key = Key { stream: Stream::Rows, ..key };
        let rows = self.rows(arena, tick).min(all.len());
        let left = all.len();
        let places: Vec<usize> =
            (0..rows).map(|at| at + key.below(tick.step, at, left - at)).collect();
        places.iter().enumerate().for_each(|(at, place)| all.swap(at, *place));
        let drawn = all[..rows].to_vec();
        places.iter().enumerate().rev().for_each(|(at, place)| all.swap(at, *place));
        drawn
    }

    /// Puts the mean gradient of the halves where the gradient is, and b into its buffer, where the
    /// first half's gradient was.
    pub(crate) fn join(&self, arena: &mut Arena, [first, second]: [usize; 2]) {
        let (first, second) = (first as f64, second as f64);
        let all = first + second;
        let (of_first, of_second) = ((first / all) as f32, (second / all) as f32);
        let scale = ((first * second).sqrt() / all) as f32;
        let (gradient, b) = arena.gradient_and_state(self.buffer);
        for (g, b) in gradient.iter_mut().zip(b) {
            let (one, other) = (*b, *g);
            *g = of_first * one + of_second * other;
            *b = scale * (one - other);
        }
    }

    /// The shape of the noise of a step whose b is in its buffer, and notes what was seen. `scale`
    /// is β₂ Δt²/s of a weight, and `noise` keys ε of step `number`.
    pub(super) fn shape(
        &self,
        arena: &mut Arena,
        tick: Tick,
        (noise, number): (Key, u64),
        scale: impl Fn(&Arena, usize) -> f32 + Sync,
    ) -> Shape {
        let (rows, all) = (self.rows(arena, tick), self.train_rows);
        let sums = self.sums(arena, (noise, number), scale);
        let left = (1.0 - rows as f64 / all as f64).max(0.0);
        let finite = left.sqrt();
        let (share, dot) = (left * sums.squares, finite * sums.dot);
        let weights = sums.weights;
        let over = (share - 1.0).max(0.0);
        let across = (1.0 - over / (weights - 1.0).max(1.0)).max(0.0).sqrt();
        let along = (1.0 - share.min(1.0)).sqrt() - across;
        let along = if share > 0.0 { along * dot / share } else { 0.0 };

        let mut numbers = arena.take_numbers();
        if numbers.len() == number::COUNT {
            let seen = sums.squares * rows as f64 / strength(tick);
            if strength(tick) > SMALLEST && seen.is_finite() {
                numbers[number::SEEN_STEPS] += 1.0;
                let steps = numbers[number::SEEN_STEPS].min(MEMORY);
                numbers[number::SEEN] += (seen - numbers[number::SEEN]) / steps;
            }
            numbers[number::STEPS] += 1.0;
            numbers[number::ROWS] += rows as f64;
            numbers[number::SHARE] += share / weights.max(1.0);
            numbers[number::REMOVED] += share.min(weights) / weights.max(1.0);
        }
        arena.set_numbers(numbers);
        Shape { across: across as f32, along: along as f32, finite: finite as f32 }
    }

    /// |b β₂ Δt²/s|², its product with ε, and how many weights there are, without frozen ones.
    fn sums(
        &self,
        arena: &Arena,
        (noise, number): (Key, u64),
        scale: impl Fn(&Arena, usize) -> f32 + Sync,
    ) -> Sums {
        let (b, marks) = (arena.state(self.buffer), arena.marks());
        let pieces: Vec<Sums> = b
            .par_chunks(PIECE)
            .enumerate()
            .map(|(piece, b)| {
                let (mut sums, mut eps) = (Sums::default(), [0.0; TILE]);
                for (tile, b) in b.chunks(TILE).enumerate() {
                    let first = piece * PIECE + tile * TILE;
                    noise.normals(number, first, &mut eps[..b.len()]);
                    for ((i, b), eps) in (first..).zip(b).zip(&eps) {
                        if marks[i] & FIXED == 0 {
                            let u = f64::from(scale(arena, i) * b);
                            sums.squares += u * u;
                            sums.dot += u * f64::from(*eps);
                            sums.weights += 1.0;
                        }
                    }
                }
                sums
            })
            .collect();
        pieces.iter().fold(Sums::default(), |sum, piece| Sums {
            squares: sum.squares + piece.squares,
            dot: sum.dot + piece.dot,
            weights: sum.weights + piece.weights,
        })
    }

    /// Means since the last record: of the temperature that the noise would have alone, what is injected
    /// and what mini-batches have, and the rows a step.
    pub(super) fn vitals(arena: &Arena, vitals: Vitals) -> Vitals {
        let numbers = arena.numbers();
        if numbers.len() != number::COUNT || numbers[number::STEPS] == 0.0 {
            return vitals;
        }
        let mean = |sum: usize| numbers[sum] / numbers[number::STEPS];
        let whole = vitals.effective_temperature;
        Vitals {
            effective_temperature: whole.map(|t| t * (1.0 - mean(number::REMOVED))),
            batch_temperature: whole.map(|t| t * mean(number::SHARE)),
            rows_a_step: Some(mean(number::ROWS)),
            ..vitals
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    squares: f64,
    dot: f64,
    weights: f64,
}

/// l/k², to which the variance of mini-batch noise in units of the injected noise is proportional.
fn strength(tick: Tick) -> f64 {
    tick.rates.step_size / tick.rates.temperature.powi(2)
}

/// Why such a run needs the cores.
pub(super) const NEEDS_HOST: &str = "`method.batch_noise = \"account\"` measures the noise of \
    every step, which a GPU run does not; set it to \"ignore\" or run with `--device cpu`";

/// What a method that can account for mini-batch noise refuses.
pub(super) fn check(choices: &Choices<'_>) -> Result<()> {
    if choices.method.batch_noise == BatchNoiseRule::Ignore {
        return Ok(());
    }
    let problem = if choices.images {
        "is \"account\", which works on tables; use \"ignore\" for images"
    } else if choices.method.kind.name() == "sghmc" && choices.method.noise == NoiseRule::Paper {
        "is \"account\", but the noise of method.noise = \"paper\" has not the temperature that is \
         asked for; use method.noise = \"exact\", or \"ignore\""
    } else {
        return Ok(());
    };
    Err(Error::config("method.batch_noise", problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::Rates;
    use thinfer_engine::noise::Key;

    const NOISE: BatchNoise = BatchNoise { train_rows: 100, batch: 8, buffer: 0 };

    fn tick(step: u64, step_size: f64) -> Tick {
        let rates = Rates {
            step_size,
            step_size_before: step_size,
            temperature: 0.1,
            eta: 0.0,
            decay_factor: 1.0,
        };
        Tick { step, epoch: 0, rates }
    }

    fn arena(weights: usize) -> Arena {
        let mut arena = Arena::flat(weights, 1);
        arena.set_numbers(vec![0.0; BatchNoise::NUMBERS]);
        arena
    }

    /// The covariance of ε after [`Shape`] for one b, over many draws of ε.
    fn covariance(b: [f32; 3]) -> [[f64; 3]; 3] {
        let key = Key::new(7, 0, Stream::Sampler);
        let mut arena = arena(3);
        arena.set_state(0, &b).unwrap();
        let (mut sums, draws) = ([[0.0; 3]; 3], 40_000);
        for step in 0..draws {
            let shape = NOISE.shape(&mut arena, tick(step, 0.01), (key, step), |_, _| 1.0);
            let mut eps = [0.0; 3];
            key.normals(step, 0, &mut eps);
            let of =
                |i: usize| f64::from(shape.across * eps[i] + shape.along * shape.finite * b[i]);
            for (i, row) in sums.iter_mut().enumerate() {
                row.iter_mut().enumerate().for_each(|(j, sum)| *sum += of(i) * of(j));
            }
        }
        sums.map(|row| row.map(|sum| sum / draws as f64))
    }

    /// 1 − u uᵀ with |u| below 1, and the same trace, as far as there is any, with |u| above 1.
    #[test]
    fn the_noise_of_a_batch_is_missing_in_the_injected_noise() {
        // 8 of 100 rows.
        let u = |b: [f32; 3]| b.map(|b| f64::from(b) * 0.92f64.sqrt());
        let b = [0.5, -0.6, 0.2];
        let (found, u_short) = (covariance(b), u(b));
        for i in 0..3 {
            for j in 0..3 {
                let want = f64::from(u8::from(i == j)) - u_short[i] * u_short[j];
                assert!((found[i][j] - want).abs() < 0.03, "{i} {j}: {found:?}");
            }
        }
        for b in [[1.2, 0.0, -0.5], [4.0, 0.0, 0.0]] {
            let found = covariance(b);
            let trace: f64 = (0..3).map(|i| found[i][i]).sum();
            let want = (3.0 - u(b).iter().map(|u| u * u).sum::<f64>()).max(0.0);
            assert!((trace - want).abs() < 0.05, "{trace} {want}");
            let along: f64 = (0..3)
                .map(|i| (0..3).map(|j| found[i][j] * f64::from(b[i] * b[j])).sum::<f64>())
                .sum();
            assert!(along < 1e-6, "{along}");
        }
    }

    /// What was seen counts from the next epoch on; rows double until the noise is small enough,
    /// and smaller steps need fewer.
    #[test]
    fn a_step_reads_as_many_rows_as_its_noise_needs() {
        let mut arena = arena(2);
        let key = Key::new(7, 0, Stream::Sampler);
        // |b|² = 2.5 with 8 rows: 20 a row.
        arena.set_state(0, &[1.5, 0.5]).unwrap();
        NOISE.shape(&mut arena, tick(0, 0.01), (key, 0), |_, _| 1.0);
        assert_eq!(NOISE.rows(&arena, tick(1, 0.01)), 8, "the epoch goes on as it began");
        BatchNoise::begin_epoch(&mut arena);
        BatchNoise::recorded(&mut arena);
        // 20 (1/64 − 1/100) is below ¼, 20 (1/32 − 1/100) is not; next to nothing needs 8.
        for (step_size, rows) in [(0.01, 64), (0.1, 100), (0.002, 16), (0.0, 8)] {
            assert_eq!(NOISE.rows(&arena, tick(1, step_size)), rows, "{step_size}");
        }
        let vitals = BatchNoise::vitals(&arena, Vitals::default());
        assert_eq!(vitals, Vitals::default(), "no step was made since");
        let one = BatchNoise { batch: 1, ..NOISE };
        assert_eq!(one.rows(&arena, tick(1, 0.0)), 2, "halves need a row each");
    }

    /// What is taken out and what mini-batches have are together the whole.
    #[test]
    fn the_parts_of_the_temperature_are_told() {
        let mut arena = arena(2);
        let key = Key::new(7, 0, Stream::Sampler);
        arena.set_state(0, &[0.6, 0.3]).unwrap();
        NOISE.shape(&mut arena, tick(0, 0.01), (key, 0), |_, _| 1.0);
        let whole = Vitals { effective_temperature: Some(0.01), ..Vitals::default() };
        let vitals = BatchNoise::vitals(&arena, whole);
        let share = 0.92 * 0.45 / 2.0;
        let near = |found: Option<f64>, want: f64| (found.unwrap() - want).abs() < 1e-8;
        assert!(near(vitals.batch_temperature, 0.01 * share), "{vitals:?}");
        assert!(near(vitals.effective_temperature, 0.01 * (1.0 - share)), "{vitals:?}");
        assert_eq!(vitals.rows_a_step, Some(8.0));
    }

    /// Rows are drawn once each, all alike often, and as if no step had been before.
    #[test]
    fn rows_of_a_step_are_a_fair_draw_of_its_own() {
        let arena = arena(2);
        let key = Key::new(7, 0, Stream::Shuffle);
        let (mut counts, mut all) = (vec![0; 100], Vec::new());
        for step in 0..5000 {
            let rows = NOISE.draw(&arena, tick(step, 0.01), key, &mut all);
            let mut sorted = rows.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), 8);
            assert_eq!(rows, NOISE.draw(&arena, tick(step, 0.01), key, &mut Vec::new()));
            rows.iter().for_each(|row| counts[*row as usize] += 1);
        }
        // 400 each, with a standard deviation of 19.
        assert!(counts.iter().all(|&count| (300..500).contains(&count)), "{counts:?}");
    }

    #[test]
    fn halves_give_the_mean_and_its_noise() {
        let mut arena = arena(2);
        arena.set_state(0, &[1.0, 4.0]).unwrap();
        arena.set_gradient(&[4.0, 4.0]).unwrap();
        NOISE.join(&mut arena, [2, 1]);
        assert!((arena.gradient()[0] - 2.0).abs() < 1e-6 && arena.gradient()[1] == 4.0);
        assert!((arena.state(0)[0] + 2f32.sqrt()).abs() < 1e-6 && arena.state(0)[1] == 0.0);
    }
}
