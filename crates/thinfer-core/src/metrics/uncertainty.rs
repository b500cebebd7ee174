//! How much is unknown about a row, and how much of it more data could remove.

use serde::Serialize;

/// What is unknown about the class of one row, in nats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Uncertainty {
    /// The entropy of the averaged prediction: all that is unknown.
    pub entropy: f64,
    /// That entropy less the mean entropy of the members: how much the members disagree, which is
    /// what is unknown about the weights. 0 where they agree, at most ln(members).
    pub mutual_information: f64,
}

/// −Σₖ pₖ ln pₖ in nats; classes of probability 0 add nothing.
pub fn entropy(p: &[f64]) -> f64 {
    p.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum()
}

/// The uncertainty of each row; `members` holds one row-major table of probabilities a member.
/// Without members there are no rows.
pub fn uncertainty(members: &[&[f64]], classes: usize) -> Vec<Uncertainty> {
    let Some(first) = members.first() else { return Vec::new() };
    assert!(members.iter().all(|m| m.len() == first.len()), "members have the same rows");
    let (classes, count) = (classes.max(1), members.len() as f64);
    let mut mean = vec![0.0; classes];
    (0..first.len() / classes)
        .map(|row| {
            let range = row * classes..(row + 1) * classes;
            mean.fill(0.0);
            let mut within = 0.0;
            for member in members {
                let p = &member[range.clone()];
                mean.iter_mut().zip(p).for_each(|(mean, p)| *mean += p / count);
                within += entropy(p) / count;
            }
            let entropy = entropy(&mean);
            // Equal members may leave a rounding error below 0.
            Uncertainty { entropy, mutual_information: (entropy - within).max(0.0) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::golden;
    use super::*;

    /// From scipy 1.17 with `p` of shape (members, rows, classes):
    /// `h = entropy(p.mean(0), axis=1)`, `mi = h - entropy(p, axis=2).mean(0)`.
    #[test]
    fn uncertainty_against_scipy() {
        let (members, _) = golden::members();
        let members: Vec<&[f64]> = members.iter().map(Vec::as_slice).collect();
        let found = uncertainty(&members, golden::CLASSES);
        let mean = |value: fn(&Uncertainty) -> f64| {
            found.iter().map(value).sum::<f64>() / golden::ROWS as f64
        };
        assert!((mean(|u| u.entropy) - 1.336_976_972_433_392_6).abs() < 1e-12);
        assert!((mean(|u| u.mutual_information) - 0.123_324_335_943_882_5).abs() < 1e-12);
        assert!((found[7].entropy - 1.353_026_659_033_345).abs() < 1e-12);
        assert!((found[7].mutual_information - 0.072_957_944_184_264_49).abs() < 1e-12);
    }

    #[test]
    fn members_that_agree_and_members_that_contradict() {
        let (sure, other) = ([1.0, 0.0], [0.0, 1.0]);
        assert_eq!(uncertainty(&[&sure, &sure], 2), [Uncertainty::default()]);
        let torn = uncertainty(&[&sure, &other], 2)[0];
        assert!((torn.entropy - 2f64.ln()).abs() < 1e-15);
        assert!((torn.mutual_information - 2f64.ln()).abs() < 1e-15);
        let doubt = uncertainty(&[&[0.3, 0.7], &[0.3, 0.7], &[0.3, 0.7]], 2)[0];
        assert!(doubt.mutual_information < 1e-15);
        assert!(uncertainty(&[], 2).is_empty());
    }
}
