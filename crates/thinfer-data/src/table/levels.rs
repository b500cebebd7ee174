//! What inputs and targets share: moments over rows, and the order and meaning of levels.

/// Mean and standard deviation (divisor n) of `values` at `rows`; the deviation of equal values is
/// exactly 0, which the two passes alone do not promise.
pub(super) fn moments(values: &[f64], rows: &[u32]) -> (f64, f64) {
    let at = || rows.iter().map(|row| values[*row as usize]);
    let count = rows.len().max(1) as f64;
    let mean = at().sum::<f64>() / count;
    match at().next() {
        Some(first) if at().all(|value| value == first) => (first, 0.0),
        _ => (mean, (at().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()),
    }
}

/// Numeric order where every level is a number, alphabetic order otherwise.
pub(super) fn sort_levels(levels: &mut [String]) {
    levels.sort_unstable();
    if levels.iter().all(|level| level.parse::<f64>().is_ok()) {
        let number = |level: &String| level.parse::<f64>().unwrap_or_default();
        levels.sort_by(|a, b| number(a).total_cmp(&number(b)));
    }
}

/// The number each level stands for, where it does; truth values are read as 1 and 0.
pub(super) fn level_values(levels: &[String]) -> Vec<Option<f64>> {
    let value = |level: &String| match level.to_ascii_lowercase().as_str() {
        "true" => Some(1.0),
        "false" => Some(0.0),
        other => other.parse().ok(),
    };
    levels.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(levels: &[&str]) -> Vec<String> {
        let mut levels: Vec<String> = levels.iter().map(|level| (*level).to_owned()).collect();
        sort_levels(&mut levels);
        levels
    }

    #[test]
    fn levels_that_are_numbers_are_in_numeric_order() {
        assert_eq!(sorted(&["10", "9", "-1", "2.5"]), ["-1", "2.5", "9", "10"]);
        assert_eq!(sorted(&["10", "9", "a"]), ["10", "9", "a"]);
        assert_eq!(sorted(&["01", "1", "0"]), ["0", "01", "1"]);
    }

    #[test]
    fn levels_stand_for_numbers_and_truth_values() {
        let levels = ["1.5", "TRUE", "False", "a"].map(str::to_owned);
        assert_eq!(level_values(&levels), [Some(1.5), Some(1.0), Some(0.0), None]);
    }

    #[test]
    fn moments_use_the_given_rows_and_equal_values_do_not_deviate() {
        assert_eq!(moments(&[1.0, 100.0, 3.0], &[0, 2]), (2.0, 1.0));
        // The mean of three tenths is not a tenth.
        assert_eq!(moments(&[0.1; 3], &[0, 1, 2]), (0.1, 0.0));
        assert_eq!(moments(&[], &[]), (0.0, 0.0));
        assert_eq!(moments(&[0.0, 1e-200], &[0, 1]).1, 0.0);
    }
}
