//! How well a probability ranks rows: the ROC curve and the area under it.

use super::detect;

/// One class against the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Roc {
    /// Share of the other rows above a threshold, and share of the rows of the class, from (0, 0)
    /// to (1, 1). Rows of equal probability pass a threshold together.
    pub points: Vec<(f64, f64)>,
    /// The area under the curve: the probability that a row of the class has a larger probability
    /// of it than another row, ties counted half.
    pub auc: f64,
}

/// The ROC curve of class `class`; `None` where all rows are of the class, or none is.
pub fn roc<T: Copy + Into<f64>>(
    probabilities: &[f64],
    classes: usize,
    truth: &[T],
    class: usize,
) -> Option<Roc> {
    assert_eq!(probabilities.len(), classes * truth.len(), "a probability for every class");
    let of_class = |row: usize| truth[row].into() as usize == class;
    let score = |row: usize| probabilities[row * classes + class];
    let rows = |wanted: bool| (0..truth.len()).filter(move |&row| of_class(row) == wanted);
    let (inside, outside): (Vec<f64>, Vec<f64>) =
        (rows(true).map(score).collect(), rows(false).map(score).collect());
    let auc = detect(&outside, &inside)?.auroc;
    let mut all: Vec<(f64, bool)> = inside.iter().map(|s| (*s, true)).collect();
    all.extend(outside.iter().map(|s| (*s, false)));
    all.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let mut points = vec![(0.0, 0.0)];
    let (mut right, mut wrong) = (0usize, 0usize);
    for step in all.chunk_by(|a, b| a.0 == b.0) {
        let found = step.iter().filter(|(_, is)| *is).count();
        (right, wrong) = (right + found, wrong + step.len() - found);
        points.push((wrong as f64 / outside.len() as f64, right as f64 / inside.len() as f64));
    }
    Some(Roc { points, auc })
}

/// The area under the ROC curve: of two classes that of the second; of more the mean over classes,
/// each against the others. Classes without a row do not count.
pub fn auc<T: Copy + Into<f64>>(probabilities: &[f64], classes: usize, truth: &[T]) -> Option<f64> {
    let counted = if classes == 2 { 1..2 } else { 0..classes };
    let all: Vec<f64> =
        counted.filter_map(|class| Some(roc(probabilities, classes, truth, class)?.auc)).collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two classes, p of the second: of the 4 pairs 3 are in order and one is tied.
    #[test]
    fn a_curve_and_its_area_by_hand() {
        let p = [0.6, 0.4, 0.4, 0.6, 0.4, 0.6, 0.2, 0.8];
        let truth = [0.0f32, 1.0, 0.0, 1.0];
        let found = roc(&p, 2, &truth, 1).unwrap();
        assert_eq!(found.points, [(0.0, 0.0), (0.0, 0.5), (0.5, 1.0), (1.0, 1.0)]);
        assert_eq!(found.auc, 0.875);
        assert_eq!(auc(&p, 2, &truth), Some(0.875));
        assert_eq!(roc(&p, 2, &[0.0f32; 4], 1), None);
        assert_eq!(auc::<f32>(&[], 2, &[]), None);
    }

    /// The third class has no row; the first is ranked perfectly, the second is as by chance.
    #[test]
    fn classes_are_averaged() {
        let p = [0.5, 0.3, 0.2, 0.4, 0.3, 0.3, 0.1, 0.3, 0.6];
        let truth = [0u8, 0, 1];
        assert_eq!(auc(&p, 3, &truth), Some(0.75));
    }
}
