//! How probable it is that a variable matters, of chains that draw which groups are in the slab.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use thinfer_core::posterior::Snapshot;

/// The probability of each variable that its weights are in the slab, given the data; as JSON it is
/// a map.
#[derive(Clone, Debug, PartialEq)]
pub struct Inclusion {
    names: Vec<String>,
    values: Vec<f64>,
    /// The largest difference between the probabilities that two chains give one variable; nothing
    /// where there is one chain. Chains that have mixed agree.
    pub difference: Option<f64>,
}

impl Inclusion {
    /// The mean over the samples of each chain, and over chains. Samples of the warm-up, in which
    /// nothing is drawn yet, have no probabilities. Nothing where a chain has no others.
    pub(super) fn of(names: &[String], chains: &[Vec<&Snapshot>]) -> Option<Self> {
        let means: Vec<Vec<f64>> = chains
            .iter()
            .map(|chain| mean(chain, names.len()))
            .collect::<Option<Vec<_>>>()
            .filter(|means| !means.is_empty())?;
        let of = |v: usize| means.iter().map(move |chain| chain[v]);
        let values = (0..names.len()).map(|v| of(v).sum::<f64>() / means.len() as f64).collect();
        let range = |v: usize| of(v).fold(0.0, f64::max) - of(v).fold(1.0, f64::min);
        let difference = (means.len() > 1).then(|| (0..names.len()).map(range).fold(0.0, f64::max));
        Some(Self { names: names.to_vec(), values, difference })
    }

    /// Names and probabilities, variable by variable.
    pub fn variables(&self) -> impl Iterator<Item = (&str, f64)> {
        self.names.iter().map(String::as_str).zip(self.values.iter().copied())
    }

    /// The probabilities, variable by variable.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The probability of a variable, by its name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.names.iter().position(|own| own == name).map(|at| self.values[at])
    }

    /// Whether a variable is more probable than not.
    pub fn selects(&self, variable: usize) -> bool {
        self.values.get(variable).is_some_and(|p| *p > 0.5)
    }
}

/// The mean over the samples of a chain that have probabilities of so many variables.
fn mean(chain: &[&Snapshot], variables: usize) -> Option<Vec<f64>> {
    let drawn = chain.iter().map(|sample| &sample.inclusion);
    let drawn: Vec<&Vec<f32>> =
        drawn.filter(|of| !of.is_empty() && of.len() == variables).collect();
    let count = drawn.len() as f64;
    let of = |v: usize| drawn.iter().map(|of| f64::from(of[v])).sum::<f64>() / count;
    (!drawn.is_empty()).then(|| (0..variables).map(of).collect())
}

impl Serialize for Inclusion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.names.len()))?;
        for (name, value) in self.names.iter().zip(&self.values) {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(chain: u32, inclusion: &[f32]) -> Snapshot {
        let (weights, keep, stats) = (Vec::new(), Vec::new(), Vec::new());
        Snapshot { chain, epoch: 0, weights, keep, stats, inclusion: inclusion.to_vec() }
    }

    #[test]
    fn chains_weigh_equally_and_samples_of_the_warm_up_not_at_all() {
        let names = ["a".to_owned(), "b".to_owned()];
        let long = [sample(0, &[]), sample(0, &[1.0, 0.0]), sample(0, &[0.5, 0.25])];
        let short = [sample(1, &[0.25, 0.125])];
        let (long, short) = (long.iter().collect::<Vec<_>>(), short.iter().collect::<Vec<_>>());
        let found = Inclusion::of(&names, &[long.clone(), short]).unwrap();
        assert_eq!(found.values(), [0.5, 0.125]);
        assert_eq!((found.get("b"), found.get("c")), (Some(0.125), None));
        assert_eq!(found.difference, Some(0.5));
        assert!(!found.selects(0), "one half is not more probable than not");
        assert_eq!(serde_json::to_string(&found).unwrap(), r#"{"a":0.5,"b":0.125}"#);
        assert_eq!(Inclusion::of(&names, &[long]).unwrap().difference, None);
        let plain = sample(2, &[]);
        assert_eq!(Inclusion::of(&names, &[vec![&plain]]), None);
        assert_eq!(Inclusion::of(&names, &[]), None);
    }
}
