//! What is masked and stays all the same, and why.

use serde::Serialize;
use thinfer_engine::Family;

use super::Shrunk;

/// Masked numbers of one parameter that the smaller network still has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// The parameter.
    pub name: String,
    /// How many of its elements are masked.
    pub masked: usize,
    /// How many elements the smaller network has of it.
    pub of: usize,
    /// Why they stay.
    pub reason: &'static str,
}

/// What of `small` is masked, parameter by parameter.
pub fn leftovers(keep: &[u8], small: &Shrunk) -> Vec<Leftover> {
    let mut found = Vec::new();
    for node in small.network.nodes() {
        let params = small.network.params();
        match node.op.family() {
            Family::Weights { weight, bias, window } => {
                let weight = &params[weight];
                let marks = small.marks(keep, weight.range());
                let rows = || marks.chunks_exact(weight.fan_in());
                let masked = masked_in(&marks);
                // A row that is all masked stays for what comes after it, single weights for the
                // other weights of their row and column.
                let reason = if rows().any(|row| row.iter().all(|mark| *mark == 0)) {
                    "an output without weights still gets a bias, a norm's shift or a side of a sum"
                } else if columns(&marks, weight.fan_in()).any(|kept| !kept) {
                    match window {
                        None => "a list of what is read would leave out too little",
                        Some(_) => "other places of the same kernels are kept",
                    }
                } else {
                    "other outputs read the same inputs, and a layer is a full rectangle"
                };
                push(&mut found, &weight.name, masked, weight.len(), reason);
                if let Some(bias) = bias.map(|bias| &params[bias]) {
                    let marks = small.marks(keep, bias.range());
                    let masked = masked_in(&marks);
                    let reason = "the output has weights, and biases come one an output";
                    push(&mut found, &bias.name, masked, bias.len(), reason);
                }
            }
            Family::Norm { scale, shift, .. } => {
                for param in [&params[scale], &params[shift]] {
                    let marks = small.marks(keep, param.range());
                    let masked = masked_in(&marks);
                    let reason =
                        "the norm's other number is kept, or its channel fills up a multiple";
                    push(&mut found, &param.name, masked, param.len(), reason);
                }
            }
            // Scales of members are never masked.
            Family::Input
            | Family::Pool(_)
            | Family::Curve(_)
            | Family::Sum
            | Family::List(..)
            | Family::Scales { .. } => {}
        }
    }
    found
}

/// For each input of a layer, whether any weight that reads it is kept.
fn columns(marks: &[u8], inputs: usize) -> impl Iterator<Item = bool> + '_ {
    (0..inputs).map(move |input| marks[input..].iter().step_by(inputs).any(|mark| *mark != 0))
}

fn masked_in(marks: &[u8]) -> usize {
    marks.iter().map(|mark| usize::from(*mark == 0)).sum()
}

fn push(to: &mut Vec<Leftover>, name: &str, masked: usize, of: usize, reason: &'static str) {
    if masked > 0 {
        to.push(Leftover { name: name.to_owned(), masked, of, reason });
    }
}

impl Shrunk {
    fn marks(&self, keep: &[u8], range: std::ops::Range<usize>) -> Vec<u8> {
        self.params[range].iter().map(|&at| keep[at as usize]).collect()
    }
}
