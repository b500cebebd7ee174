//! Axes: a range, and where its labels stand.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// Labels on an axis, at most about this many.
const LABELS: f64 = 6.0;

/// One axis of a plot.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// The range, in the axis' own units: those of the data, or their logarithm to base 10.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Where labels stand, and what they say.
    pub labels: Vec<(f64, String)>,
    /// Whether lines are drawn across the plot at the labels.
    pub grid: bool,
    log: bool,
}

impl Axis {
    /// An axis that holds all finite values, with some room.
    pub(super) fn linear(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = range(values).unwrap_or((0.0, 1.0));
        // Differences in the fourth digit are rounding, or not worth a plot that they fill.
        let least = 1e-3 * low.abs().max(high.abs());
        let room = match high - low {
            0.0 if low == 0.0 => 1.0,
            0.0 => (0.5 * low.abs()).max(1e-300),
            span => (0.04 * span).max(0.5 * (least - span)),
        };
        // What cannot be negative is not shown as if it could.
        let bottom = if low >= 0.0 { (low - room).max(0.0) } else { low - room };
        Self::between(bottom, high + room)
    }

    /// A linear axis with these ends, the first below the second.
    pub(super) fn between(low: f64, high: f64) -> Self {
        let step = nice_step((high - low) / LABELS);
        Self::with_step(low, high, step)
    }

    /// An axis of whole numbers.
    pub(super) fn whole(low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self::with_step(low, high, nice_step((high - low) / LABELS).max(1.0))
    }

    fn with_step(low: f64, high: f64, step: f64) -> Self {
        let first = (low / step).ceil();
        let count = ((high / step).floor() - first).clamp(0.0, 50.0) as usize;
        let most = low.abs().max(high.abs());
        let labels = (0..=count)
            .map(|i| (first + i as f64) * step)
            .filter(|at| (low..=high).contains(at))
            .map(|at| (at, label(at, step, most)))
            .collect();
        Self { low, high, labels, grid: true, log: false }
    }

    /// A logarithmic axis that holds all finite values above 0.
    pub(super) fn logarithmic(values: impl IntoIterator<Item = f64>) -> Self {
        let positive = values.into_iter().filter(|v| *v > 0.0);
        let (low, high) = range(positive).unwrap_or((1.0, 10.0));
        let (low, high) = (low.log10(), high.log10());
        let room = (0.04 * (high - low)).max(if high - low < 0.3 { 0.2 } else { 0.0 });
        let (low, high) = (low - room, high + room);
        let labels = if high - low < 1.0 {
            // Within a decade round numbers are at equal steps.
            let ends = Self::between(10f64.powf(low), 10f64.powf(high));
            ends.labels.into_iter().map(|(v, text)| (v.log10(), text)).collect()
        } else {
            let decades = high - low;
            let leading: &[f64] = if decades <= 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let every = (decades / LABELS).ceil() as i32;
            (low.floor() as i32..=high.ceil() as i32)
                .filter(|power| power.rem_euclid(every) == 0)
                .flat_map(|power| leading.iter().map(move |l| l * 10f64.powi(power)))
                .map(|v| (v.log10(), short(v)))
                .filter(|(at, _)| (low..=high).contains(at))
                .collect()
        };
        Self { low, high, labels, grid: true, log: true }
    }

    /// Logarithmic where the values are positive and span more than `factor`, linear elsewhere.
    pub(super) fn spanning(values: &[f64], factor: f64) -> Self {
        match range(values.iter().copied()) {
            Some((low, high)) if low > 0.0 && high / low > factor => {
                Self::logarithmic(values.iter().copied())
            }
            _ => Self::linear(values.iter().copied()),
        }
    }

    /// The same with its labels as percentages.
    pub(super) fn in_percent(mut self) -> Self {
        let most = 100.0 * self.low.abs().max(self.high.abs());
        let step = self.labels.windows(2).map(|pair| pair[1].0 - pair[0].0).next().unwrap_or(1.0);
        for (at, text) in &mut self.labels {
            *text = format!("{}\u{a0}%", label(100.0 * *at, 100.0 * step, most));
        }
        self
    }

    /// Names in place of numbers, from top to bottom.
    pub(super) fn names(names: &[String]) -> Self {
        let labels =
            names.iter().enumerate().map(|(at, name)| (-(at as f64), name.clone())).collect();
        Self { low: 0.5 - names.len() as f64, high: 0.5, labels, grid: false, log: false }
    }

    /// Whether the axis is logarithmic.
    pub(super) fn is_logarithmic(&self) -> bool {
        self.log
    }

    /// Where a value of the data lies, in the axis' own units.
    pub(super) fn place(&self, value: f64) -> f64 {
        if self.log { value.log10() } else { value }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (value - self.low) / (self.high - self.low);
        from + (f64::from(to - from) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Lines between labels are not wanted.
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.labels.iter().map(|l| l.0).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.labels.iter().find(|l| l.0 == *value).map_or_else(String::new, |l| l.1.clone())
    }
}

/// The least and the largest of the finite values.
fn range(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().filter(|v| v.is_finite()).fold(None, |found, v| match found {
        None => Some((v, v)),
        Some((low, high)) => Some((low.min(v), high.max(v))),
    })
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `least`.
fn nice_step(least: f64) -> f64 {
    if !(least.is_finite() && least > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf(least.log10().floor());
    let lead = least / power;
    let nice = [1.0, 2.0, 5.0].into_iter().find(|n| lead <= n * (1.0 + 1e-9)).unwrap_or(10.0);
    nice * power
}

/// A label with as many digits as the step between labels needs.
fn label(at: f64, step: f64, most: f64) -> String {
    if at.abs() < 1e-9 * step {
        return "0".into();
    }
    let power = |v: f64| v.abs().log10().floor() as i32;
    if (1e-3..1e6).contains(&most) {
        let decimals = (-power(step * (1.0 + 1e-9))).clamp(0, 12) as usize;
        return grouped(&format!("{at:.decimals$}"));
    }
    let digits = (power(at * (1.0 + 1e-9)) - power(step * (1.0 + 1e-9))).clamp(0, 12) as usize;
    format!("{at:.digits$e}").replace('-', "\u{2212}")
}

/// A round number in as few characters as it takes.
fn short(value: f64) -> String {
    if (1e-3..1e6).contains(&value) {
        let decimals = (-(value * (1.0 + 1e-9)).log10().floor()).clamp(0.0, 12.0) as usize;
        grouped(&format!("{value:.decimals$}"))
    } else {
        format!("{value:.0e}").replace('-', "\u{2212}")
    }
}

/// Commas between thousands, a real minus sign.
pub(super) fn grouped(number: &str) -> String {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(rest) => ("\u{2212}", rest),
        None => ("", number),
    };
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut text = String::from(sign);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(axis: &Axis) -> Vec<&str> {
        axis.labels.iter().map(|l| l.1.as_str()).collect()
    }

    #[test]
    fn labels_are_round_and_have_the_digits_they_need() {
        assert_eq!(said(&Axis::between(0.0, 1.0)), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(
            said(&Axis::whole(1.0, 3000.0)),
            ["500", "1,000", "1,500", "2,000", "2,500", "3,000"]
        );
        assert_eq!(said(&Axis::whole(1.0, 2.0)), ["1", "2"]);
        assert_eq!(said(&Axis::between(-2.0, 2.5)), ["\u{2212}2", "\u{2212}1", "0", "1", "2"]);
        assert_eq!(
            said(&Axis::between(0.0, 2e-5)),
            ["0", "5e\u{2212}6", "1.0e\u{2212}5", "1.5e\u{2212}5", "2.0e\u{2212}5"]
        );
    }

    #[test]
    fn logarithms_have_decades_or_1_2_5() {
        assert_eq!(said(&Axis::logarithmic([1.0, 1e4])), ["1", "10", "100", "1,000", "10,000"]);
        assert_eq!(said(&Axis::logarithmic([3.0, 80.0])), ["5", "10", "20", "50"]);
        assert_eq!(said(&Axis::logarithmic([8.0, 8.0])), ["6", "8", "10", "12"]);
        assert!(said(&Axis::logarithmic([1e-300, 1e300])).len() < 10);
        assert!(!Axis::spanning(&[1.0, 19.0], 20.0).is_logarithmic());
        assert!(Axis::spanning(&[1.0, 21.0], 20.0).is_logarithmic());
        assert!(!Axis::spanning(&[-1.0, 21.0], 20.0).is_logarithmic());
    }

    #[test]
    fn values_that_do_not_vary_or_are_no_numbers_have_an_axis() {
        for values in [
            vec![],
            vec![f64::NAN],
            vec![0.0, 0.0],
            vec![5.0],
            vec![-3.0],
            vec![1e-320],
            vec![1e300],
        ] {
            for axis in [Axis::linear(values.clone()), Axis::logarithmic(values.clone())] {
                assert!(axis.low < axis.high, "{values:?}: {axis:?}");
                assert!(axis.low.is_finite() && axis.high.is_finite(), "{values:?}: {axis:?}");
            }
        }
        let whole = Axis::whole(1.0, 1.0);
        assert_eq!(said(&whole), ["1", "2"]);
    }
}
