//! Whether probabilities mean what they say.

use serde::Serialize;

use super::{confidences, rows};

/// The usual number of bins of [`ece`].
pub const ECE_BINS: usize = 15;

/// Rows whose top probability lies in (lower, upper]; an empty bin has confidence and accuracy 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReliabilityBin {
    /// The lower end, not in the bin (but 0 is in the first).
    pub lower: f64,
    /// The upper end, in the bin.
    pub upper: f64,
    /// The mean top probability.
    pub confidence: f64,
    /// The share of rows that are right.
    pub accuracy: f64,
    /// How many rows there are.
    pub count: usize,
}

/// What [`ece`] found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// The expected calibration error.
    pub ece: f64,
    /// The reliability diagram, from low to high confidence.
    pub bins: Vec<ReliabilityBin>,
}

/// The expected calibration error Σ_b (n_b / n) |accuracy_b − confidence_b| over `bins` bins of
/// equal width on the top probability (Guo, Pleiss, Sun & Weinberger, ICML 2017), and the bins.
/// [`ECE_BINS`] is the usual number. `None` without rows or without bins.
pub fn ece<T: Copy + Into<f64>>(
    probabilities: &[f64],
    classes: usize,
    truth: &[T],
    bins: usize,
) -> Option<Calibration> {
    if truth.is_empty() || bins == 0 {
        return None;
    }
    let (confidences, right) = confidences(probabilities, classes, truth);
    Some(equal_width(confidences.into_iter().zip(right), bins))
}

/// What [`ece`] would be about, of classes that are right as often as they are confident: rows come
/// true or not, so no bin hits its confidence. Σ_b √(2 n_b c_b (1 − c_b) / π) / n, the mean of a
/// normal deviation in each bin; 0 without rows.
pub fn ece_by_chance(bins: &[ReliabilityBin]) -> f64 {
    let rows: usize = bins.iter().map(|bin| bin.count).sum();
    let deviation = |bin: &ReliabilityBin| {
        let variance = bin.count as f64 * bin.confidence * (1.0 - bin.confidence).max(0.0);
        (2.0 * variance / std::f64::consts::PI).sqrt()
    };
    bins.iter().map(deviation).sum::<f64>() / rows.max(1) as f64
}

/// The mean over classes k of Σ_b (n_b / n) |share of class k in b − mean pₖ in b|, over `bins`
/// bins of equal width on pₖ, the probability of that class (Nixon, Dusenberry, Zhang, Jerfel &
/// Tran, CVPR workshops 2019). It also looks at the probabilities of classes that are not the most
/// likely ones. `None` without rows, classes or bins.
pub fn classwise_ece<T: Copy + Into<f64>>(
    probabilities: &[f64],
    classes: usize,
    truth: &[T],
    bins: usize,
) -> Option<f64> {
    if truth.is_empty() || classes == 0 || bins == 0 {
        return None;
    }
    let of_class = |class: usize| {
        let points = rows(probabilities, classes, truth)
            .map(|(p, true_class)| (p[class], true_class == class));
        equal_width(points, bins).ece
    };
    Some((0..classes).map(of_class).sum::<f64>() / classes as f64)
}

/// Bins of equal width of probabilities, and whether each came true.
fn equal_width(points: impl Iterator<Item = (f64, bool)>, bins: usize) -> Calibration {
    let mut sums = vec![Sum::default(); bins];
    for (confidence, right) in points {
        let bin = ((confidence * bins as f64).ceil() as usize).clamp(1, bins) - 1;
        sums[bin].add(confidence, right);
    }
    let edge = |at: usize| at as f64 / bins as f64;
    let bins = sums.iter().enumerate().map(|(at, sum)| sum.bin(edge(at), edge(at + 1)));
    Calibration::of(bins.collect())
}

/// The same over bins that hold equally many rows (Nixon, Dusenberry, Zhang, Jerfel & Tran, CVPR
/// workshops 2019), which does not leave most of the rows of a good classifier in one bin.
///
/// Rows of equal confidence stay together, in the bin of the first of them, so the result does not
/// depend on the order of the rows; bins may then differ in size, and empty ones are left out.
pub fn ece_equal_mass<T: Copy + Into<f64>>(
    probabilities: &[f64],
    classes: usize,
    truth: &[T],
    bins: usize,
) -> Option<Calibration> {
    if truth.is_empty() || bins == 0 {
        return None;
    }
    let (confidences, right) = confidences(probabilities, classes, truth);
    Some(equal_mass(&confidences, &right, bins))
}

fn equal_mass(confidences: &[f64], right: &[bool], bins: usize) -> Calibration {
    let rows = confidences.len();
    let mut order: Vec<usize> = (0..rows).collect();
    order.sort_unstable_by(|a, b| confidences[*a].total_cmp(&confidences[*b]));
    let mut found: Vec<ReliabilityBin> = Vec::with_capacity(bins);
    let (mut sum, mut bin) = (Sum::default(), 0);
    for (rank, &row) in order.iter().enumerate() {
        let tied = rank > 0 && confidences[order[rank - 1]] == confidences[row];
        if !tied && rank * bins / rows != bin {
            found.extend(sum.above(&found, confidences[order[rank - 1]]));
            (sum, bin) = (Sum::default(), rank * bins / rows);
        }
        sum.add(confidences[row], right[row]);
    }
    let highest = order.last().map_or(1.0, |&row| confidences[row]);
    found.extend(sum.above(&found, highest));
    Calibration::of(found)
}

impl Calibration {
    fn of(bins: Vec<ReliabilityBin>) -> Self {
        let rows: usize = bins.iter().map(|b| b.count).sum();
        let weighted = |b: &ReliabilityBin| b.count as f64 * (b.accuracy - b.confidence).abs();
        Self { ece: bins.iter().map(weighted).sum::<f64>() / rows.max(1) as f64, bins }
    }
}

/// What is in a bin.
#[derive(Clone, Copy, Default)]
struct Sum {
    confidence: f64,
    right: usize,
    count: usize,
}

impl Sum {
    fn add(&mut self, confidence: f64, right: bool) {
        self.confidence += confidence;
        self.right += usize::from(right);
        self.count += 1;
    }

    fn bin(&self, lower: f64, upper: f64) -> ReliabilityBin {
        ReliabilityBin {
            lower,
            upper,
            confidence: self.confidence / self.count.max(1) as f64,
            accuracy: self.right as f64 / self.count.max(1) as f64,
            count: self.count,
        }
    }

    /// The bin from the end of the last one to `upper`; none where nothing is in it.
    fn above(&self, before: &[ReliabilityBin], upper: f64) -> Option<ReliabilityBin> {
        (self.count > 0).then(|| self.bin(before.last().map_or(0.0, |b| b.upper), upper))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::golden;
    use super::*;

    /// From numpy 2.4, with `rank` the number of smaller confidences, which is that of the first
    /// equal one: `b = rank * bins // n`, then
    /// `sum(abs(right[b == k].sum() - confidence[b == k].sum()) for k in range(bins)) / n`.
    #[test]
    fn bins_of_equal_mass_against_numpy() {
        let (members, truth) = golden::members();
        let mean = golden::mean(&members);
        for (bins, want) in [(5, 0.165_113_688_309_826_5), (15, 0.274_269_988_800_714_57)] {
            let found = ece_equal_mass(&mean, golden::CLASSES, &truth, bins).unwrap();
            assert!((found.ece - want).abs() < 1e-12, "{bins}: {}", found.ece);
            assert!(found.bins.iter().all(|b| b.count == golden::ROWS / bins));
            assert!(found.bins.windows(2).all(|pair| pair[0].upper == pair[1].lower));
        }
        let width = ece(&mean, golden::CLASSES, &truth, ECE_BINS).unwrap();
        assert!((width.ece - 0.148_515_497_079_709_93).abs() < 1e-12, "{}", width.ece);
    }

    #[test]
    fn equal_confidences_stay_together_in_any_order() {
        let (confidences, right) = golden::tied();
        for (bins, filled, want) in
            [(5, 5, 0.370_833_333_333_333_4), (15, 7, 0.370_833_333_333_333_35)]
        {
            let found = equal_mass(&confidences, &right, bins);
            assert!((found.ece - want).abs() < 1e-12, "{bins}: {}", found.ece);
            assert_eq!(found.bins.len(), filled);
        }
        let reversed: (Vec<f64>, Vec<bool>) =
            confidences.iter().copied().zip(right.iter().copied()).rev().unzip();
        let (one, other) =
            (equal_mass(&confidences, &right, 15), equal_mass(&reversed.0, &reversed.1, 15));
        let counts = |c: &Calibration| c.bins.iter().map(|b| b.count).collect::<Vec<_>>();
        assert_eq!(counts(&one), counts(&other));
    }

    /// By hand, in two bins: of class 0 the low bin has 0.2, 0.4, 0.1 and none came true, the high
    /// one 0.6 that did, so (0.7 + 0.4) / 4; of class 1 it is (0.6 + 0.3) / 4, of class 2
    /// (0.4 + 0.2) / 4. The top probabilities alone have (0.4 + 0.9) / 4.
    #[test]
    fn every_class_counts_alike() {
        #[rustfmt::skip]
        let p = [
            0.6, 0.3, 0.1,
            0.2, 0.7, 0.1,
            0.4, 0.2, 0.4,
            0.1, 0.1, 0.8,
        ];
        let truth = [0u32, 1, 2, 2];
        let found = classwise_ece(&p, 3, &truth, 2).unwrap();
        assert!((found - (1.1 + 0.9 + 0.6) / 12.0).abs() < 1e-12, "{found}");
        assert!((ece(&p, 3, &truth, 2).unwrap().ece - 0.325).abs() < 1e-12);
        // Right and sure in every class.
        assert_eq!(classwise_ece(&[1.0, 0.0, 0.0, 1.0], 2, &[0u32, 1], 15), Some(0.0));
    }

    /// By hand: 100 rows at 0.8 deviate by √(2 · 100 · 0.16 / π) on average. Drawn: 50 times 200
    /// rows whose classes are right as often as they say.
    #[test]
    fn what_chance_leaves_of_the_calibration_error() {
        let bin = |confidence, count| ReliabilityBin {
            lower: 0.0,
            upper: 1.0,
            confidence,
            accuracy: 0.5,
            count,
        };
        let found = ece_by_chance(&[bin(0.8, 100)]);
        assert!((found - (32.0 / std::f64::consts::PI).sqrt() / 100.0).abs() < 1e-12, "{found}");
        assert_eq!((ece_by_chance(&[]), ece_by_chance(&[bin(1.0, 9)])), (0.0, 0.0));
        let key = thinfer_engine::noise::Key::new(3, 0, thinfer_engine::noise::Stream::Inputs);
        let (mut seen, mut expected) = (0.0, 0.0);
        for step in 0..50 {
            let rows = (0..200).map(|row| {
                let p = 0.5 + 0.5 * f64::from(key.uniform(2 * step, row));
                (p, f64::from(key.uniform(2 * step + 1, row)) < p)
            });
            let found = equal_width(rows, ECE_BINS);
            seen += found.ece / 50.0;
            expected += ece_by_chance(&found.bins) / 50.0;
        }
        assert!((seen / expected - 1.0).abs() < 0.1, "{seen} against {expected}");
    }

    #[test]
    fn nothing_has_no_calibration() {
        let none: [f32; 0] = [];
        assert_eq!(classwise_ece(&[], 3, &none, 15), None);
        assert_eq!(classwise_ece(&[], 0, &[0u32], 15), None);
        assert_eq!(classwise_ece(&[1.0, 0.0], 2, &[0u32], 0), None);
        assert_eq!(ece_equal_mass(&[], 3, &none, 15), None);
        assert_eq!(ece_equal_mass(&[1.0, 0.0], 2, &[0.0f32], 0), None);
        let one = ece_equal_mass(&[1.0, 0.0], 2, &[0.0f32], 15).unwrap();
        assert_eq!((one.ece, one.bins.len()), (0.0, 1));
    }
}
