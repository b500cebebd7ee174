//! What a graph answers: probabilities of classes, or mean and standard deviation of a number.

use thinfer_engine::Loss;

use super::graph::Graph;
use super::proto::Attribute;
use crate::export::graph_io::{LOGITS, MEAN, MEANS, PROBABILITIES, SD};
use crate::export::part::Part;

/// The outputs of a graph for a loss. With several samples there are their own answers as well.
pub(super) fn outputs(loss: &Loss, samples: usize) -> Vec<&'static str> {
    match loss {
        Loss::Bernoulli | Loss::CrossEntropy { .. } => vec![PROBABILITIES, LOGITS],
        _ if samples > 1 => vec![MEAN, SD, MEANS],
        _ => vec![MEAN, SD],
    }
}

/// Writes the outputs from what the networks of `parts` give, `raw`. Numbers are put into the
/// user's units by `target`, mean and standard deviation.
pub(super) fn head(graph: &mut Graph, parts: &[Part], raw: &[String], target: (f64, f64)) {
    let [first, ..] = parts else { return };
    let width = first.network.output_len();
    match first.network.loss() {
        Loss::CrossEntropy { .. } => {
            let (all, axis) = stacked(graph, raw);
            let p = graph.node("p", "Softmax", &[&all], vec![Attribute::int("axis", axis)]);
            let p = averaged(graph, p, raw.len());
            classes(graph, &all, &p, raw.len(), [width, width]);
        }
        Loss::Bernoulli => {
            let (all, _) = stacked(graph, raw);
            let p = graph.node("p", "Sigmoid", &[&all], Vec::new());
            let p = averaged(graph, p, raw.len());
            let one = graph.floats("one", &[1], &[1.0]);
            let q = graph.node("q", "Sub", &[&one, &p], Vec::new());
            let both = graph.node("pq", "Concat", &[&q, &p], vec![Attribute::int("axis", 1)]);
            classes(graph, &all, &both, raw.len(), [width, 2]);
        }
        // A number; counts are refused before.
        _ => {
            let variances = parts.iter().map(Part::noise_variance).sum::<f64>();
            let variance = variances / parts.len() as f64;
            if first.network.loss().is_by_row() {
                let (means, noise) = apart(graph, raw, variance);
                number(graph, &means, &noise, target, width / 2);
            } else {
                let noise = graph.floats("noise", &[1], &[variance as f32]);
                number(graph, raw, &noise, target, width);
            }
        }
    }
}

/// Samples behind one another, (rows, samples, outputs), and the axis of the outputs. One sample
/// stays as it is.
fn stacked(graph: &mut Graph, raw: &[String]) -> (String, i64) {
    match raw {
        [one] => (one.clone(), 1),
        several => (stack(graph, several), 2),
    }
}

fn stack(graph: &mut Graph, raw: &[String]) -> String {
    stack_as(graph, "samples", raw)
}

fn stack_as(graph: &mut Graph, name: &str, raw: &[String]) -> String {
    let axis = graph.integers(&format!("{name}/axis"), &[1]);
    let each: Vec<String> = raw
        .iter()
        .map(|one| graph.node(&format!("{one}/sample"), "Unsqueeze", &[one, &axis], Vec::new()))
        .collect();
    let each: Vec<&str> = each.iter().map(String::as_str).collect();
    graph.node(name, "Concat", &each, vec![Attribute::int("axis", 1)])
}

fn averaged(graph: &mut Graph, value: String, samples: usize) -> String {
    if samples == 1 { value } else { mean_of_samples(graph, "averaged", &value, false) }
}

fn mean_of_samples(graph: &mut Graph, name: &str, value: &str, keep: bool) -> String {
    let attributes = vec![Attribute::ints("axes", &[1]), Attribute::int("keepdims", keep.into())];
    graph.node(name, "ReduceMean", &[value], attributes)
}

fn classes(graph: &mut Graph, logits: &str, p: &str, samples: usize, widths: [usize; 2]) {
    let about = "the mean over samples of their probabilities, class by class";
    graph.output(p, PROBABILITIES, &widths[1..], about);
    let shape = [samples, widths[0]];
    let shape = if samples == 1 { &shape[1..] } else { &shape[..] };
    graph.output(logits, LOGITS, shape, "what each network gives, before it is a probability");
}

/// The means that samples give, and the mean over samples of the variance of the noise of a row:
/// `factor` times e to twice their second number.
fn apart(graph: &mut Graph, raw: &[String], factor: f64) -> (Vec<String>, String) {
    let places = [graph.integers("mean/place", &[0]), graph.integers("noise/place", &[1])];
    let mut pick = |one: &String, of: usize, word: &str| {
        let axis = vec![Attribute::int("axis", 1)];
        graph.node(&format!("{one}/{word}"), "Gather", &[one, &places[of]], axis)
    };
    let means = raw.iter().map(|one| pick(one, 0, "mean")).collect();
    let logs: Vec<String> = raw.iter().map(|one| pick(one, 1, "log_noise")).collect();
    let logs = stack_as(graph, "log_noises", &logs);
    let double = graph.node("log_noises/double", "Add", &[&logs, &logs], Vec::new());
    let squares = graph.node("noise/squares", "Exp", &[&double], Vec::new());
    let mean = mean_of_samples(graph, "noise/mean", &squares, false);
    let factor = graph.floats("noise/factor", &[1], &[factor as f32]);
    (means, graph.node("noise", "Mul", &[&mean, &factor], Vec::new()))
}

/// Mean and deviation of an equal-weight mixture of normal distributions: the variance is the mean
/// of the variances, and that of the means.
fn number(graph: &mut Graph, raw: &[String], noise: &str, target: (f64, f64), width: usize) {
    let all = stack(graph, raw);
    let centred = mean_of_samples(graph, "centre", &all, true);
    let average = mean_of_samples(graph, "average", &all, false);
    let apart = graph.node("apart", "Sub", &[&all, &centred], Vec::new());
    let square = graph.node("apart/square", "Mul", &[&apart, &apart], Vec::new());
    let between = mean_of_samples(graph, "between", &square, false);
    let variance = graph.node("variance", "Add", &[&between, noise], Vec::new());
    let deviation = graph.node("deviation", "Sqrt", &[&variance], Vec::new());
    let scale = graph.floats("target/sd", &[1], &[target.1 as f32]);
    let sd = graph.node("sd/units", "Mul", &[&deviation, &scale], Vec::new());
    // The mean of the target comes last and in two parts, so that answers far from zero are rounded
    // once.
    let centre = graph.floats("target/mean", &[1], &[target.0 as f32]);
    let rest = (target.0 - f64::from(target.0 as f32)) as f32;
    let rest = graph.floats("target/rest", &[1], &[rest]);
    let mut in_units = |value: &str, name: &str| {
        let scaled = graph.node(&format!("{name}/scaled"), "Mul", &[value, &scale], Vec::new());
        let moved = graph.node(&format!("{name}/moved"), "Add", &[&scaled, &rest], Vec::new());
        graph.node(&format!("{name}/units"), "Add", &[&moved, &centre], Vec::new())
    };
    let means = in_units(&all, "samples");
    let mean = in_units(&average, "mean");
    graph.output(&mean, MEAN, &[width], "the mean of the prediction");
    graph.output(&sd, SD, &[width], "its standard deviation, noise included");
    if raw.len() > 1 {
        graph.output(&means, MEANS, &[raw.len(), width], "the mean that each sample predicts");
    }
}
