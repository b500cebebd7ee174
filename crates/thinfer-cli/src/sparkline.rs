//! A course of numbers in one line of text.

/// From low to high.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Stands where there is no number.
const NOTHING: char = '?';

/// The numbers as blocks between `low` and `high`, at most `width` of them; each is the mean of its
/// stretch. What lies outside is drawn at the edge.
pub(crate) fn sparkline(values: &[f64], (low, high): (f64, f64), width: usize) -> String {
    let blocks = values.len().min(width.max(1));
    let block = |at: usize| {
        let part = &values[at * values.len() / blocks..(at + 1) * values.len() / blocks];
        let mean = part.iter().sum::<f64>() / part.len() as f64;
        if !mean.is_finite() {
            return NOTHING;
        }
        // Where all is one value there is no course.
        let height = if high > low { (mean - low) / (high - low) } else { 0.5 };
        let last = BLOCKS.len() - 1;
        BLOCKS[((height * BLOCKS.len() as f64).max(0.0) as usize).min(last)]
    };
    (0..blocks).map(block).collect()
}

/// The smallest and the largest of the numbers that are finite; 0 and 0 without any.
pub(crate) fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let of = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
    let found = values.filter(|v| v.is_finite()).fold((f64::INFINITY, f64::NEG_INFINITY), of);
    if found.0 <= found.1 { found } else { (0.0, 0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_has_a_block_for_each_stretch() {
        let rising: Vec<f64> = (0..8).map(f64::from).collect();
        assert_eq!(sparkline(&rising, range(rising.iter().copied()), 60), "▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&rising, (0.0, 7.0), 2), "▂▇");
        assert_eq!(sparkline(&[-9.0, 9.0, f64::NAN], (0.0, 1.0), 9), "▁█?");
        assert_eq!(sparkline(&[2.0; 3], (2.0, 2.0), 9), "▅▅▅");
        assert_eq!(sparkline(&[], (0.0, 1.0), 9), "");
        assert_eq!(range([f64::NAN].into_iter()), (0.0, 0.0));
    }
}
