//! Whether a masked network and the smaller one cut out of it are the same function.

use serde::Serialize;
use thinfer_data::Result;
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Dataset, ExactPlan, Family, Loss, Network, NetworkBuilder, NodeId, Op};

use super::Shrunk;

/// In double precision both networks add the same numbers in another order, and nothing else.
const TOLERANCE: f64 = 1e-9;
/// Random rows that are tried; batch norms need more than one.
const ROWS: usize = 6;

/// How far two networks are apart, each number relative to the largest of its kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Agreement {
    /// Outputs with running statistics.
    pub inference: f64,
    /// The loss in training, with the statistics of the batch.
    pub loss: f64,
    /// Its gradient, for all parameters that are not masked: the others do not move.
    pub gradient: f64,
    /// The running statistics after that step.
    pub statistics: f64,
    /// The largest difference that counts as none.
    pub tolerance: f64,
    /// The first layer whose values differ, where they do.
    pub culprit: Option<String>,
}

impl Agreement {
    /// Whether both are the same function.
    pub fn holds(&self) -> bool {
        self.worst() <= self.tolerance
    }

    /// The largest difference.
    pub fn worst(&self) -> f64 {
        let all = [self.inference, self.loss, self.gradient, self.statistics];
        // A difference that is no number is no agreement, and `max` would pass over it.
        all.into_iter().map(|d| if d.is_nan() { f64::INFINITY } else { d }).fold(0.0, f64::max)
    }
}

/// Compares `network` with marks, weights and statistics, as a run keeps them, to `small`: forward
/// with running statistics, forward and backward with those of a batch, on random rows and on
/// `data` where it is given. In double precision, so that only real differences show.
pub fn agreement(
    network: &Network,
    small: &Shrunk,
    (keep, weights): (&[u8], &[f32]),
    stats: &[f32],
    data: Option<&Dataset>,
) -> Result<Agreement> {
    let random = random_rows(network)?;
    let mut found = Agreement {
        inference: 0.0,
        loss: 0.0,
        gradient: 0.0,
        statistics: 0.0,
        tolerance: TOLERANCE,
        culprit: None,
    };
    let columns: Vec<usize> = small.inputs.iter().map(|c| *c as usize).collect();
    let whole_input = network.input_len() == small.network.input_len();
    for data in std::iter::once(&random).chain(data) {
        let fewer = if whole_input { data.clone() } else { data.take_columns(&columns) };
        let (w, s) = (wide(weights), wide(stats));
        let (small_w, small_s) = (small.take(&w), wide(&small.take_stats(stats)));
        let large = Values::of(network, &w, &s, data)?;
        let less = Values::of(&small.network, &small_w, &small_s, &fewer)?;
        found.inference = worst_of(found.inference, &less.output, &large.output);
        found.loss = worst_of(found.loss, &[less.loss], &[large.loss]);
        let scale = largest(&large.gradient);
        for param in small.network.params() {
            let kept = param.range().filter(|at| keep[small.params[*at] as usize] != 0);
            let (got, wanted): (Vec<f64>, Vec<f64>) = kept
                .map(|at| (less.gradient[at], large.gradient[small.params[at] as usize]))
                .unzip();
            found.gradient = found.gradient.max(distance(&got, &wanted) / scale);
        }
        let (got, wanted) = statistics(network, small, &w, [&less.stats, &large.stats]);
        found.statistics = worst_of(found.statistics, &got, &wanted);
    }
    if !found.holds() {
        found.culprit = culprit(network, small, weights, stats, &random)?;
    }
    Ok(found)
}

/// What a network makes of some rows, in double precision.
struct Values {
    output: Vec<f64>,
    loss: f64,
    gradient: Vec<f64>,
    stats: Vec<f64>,
}

impl Values {
    fn of(network: &Network, weights: &[f64], stats: &[f64], data: &Dataset) -> Result<Self> {
        let rows: Vec<u32> = (0..data.rows().min(ROWS) as u32).collect();
        let mut plan = ExactPlan::new(network, rows.len())?;
        let output = plan.forward(weights, stats, data, &rows)?;
        let mut stats = stats.to_vec();
        let mut gradient = vec![0.0; weights.len()];
        let loss = if data.has_targets() {
            plan.gradient(weights, &mut stats, data, &rows, &mut gradient)?
        } else {
            0.0
        };
        Ok(Self { output, loss, gradient, stats })
    }
}

/// Running statistics of the smaller and of the larger network where the output depends on them:
/// nothing reads a norm's input where its scale is zero, nor all of what fills up a layer.
fn statistics(
    network: &Network,
    small: &Shrunk,
    weights: &[f64],
    [less, large]: [&[f64]; 2],
) -> (Vec<f64>, Vec<f64>) {
    let mut found = (Vec::new(), Vec::new());
    for (at, node) in network.nodes().iter().enumerate() {
        let Op::BatchNorm { scale, mean, variance, .. } = node.op else { continue };
        let Some(became) = small.became[at] else { continue };
        let Op::BatchNorm { mean: small_mean, variance: small_variance, .. } =
            small.network.nodes()[became.0].op
        else {
            continue;
        };
        let scales = &weights[network.params()[scale].range()];
        for (place, &c) in small.channels[at].iter().enumerate() {
            let c = c as usize;
            if !small.read[at][c] || scales[c] == 0.0 {
                continue;
            }
            for (little, big) in [(small_mean, mean), (small_variance, variance)] {
                found.0.push(less[small.network.stats()[little].offset + place]);
                found.1.push(large[network.stats()[big].offset + c]);
            }
        }
    }
    found
}

/// Normal inputs, and targets that the loss can take.
fn random_rows(network: &Network) -> Result<Dataset> {
    let key = Key::new(0x7_1a1f, 0, Stream::Observation);
    let mut inputs = vec![0.0; ROWS * network.input_len()];
    key.normals(0, 0, &mut inputs);
    let classes = network.output_len();
    let width = network.loss().target_len(classes);
    let target = |at: usize| network.loss().some_target(classes, at, key.normal(1, at));
    let targets = (0..ROWS * width).map(target).collect();
    Ok(Dataset::new(network.input_len(), width, inputs, targets)?)
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|v| f64::from(*v)).collect()
}

/// The largest finite size: against an infinite one every difference would be none.
fn largest(values: &[f64]) -> f64 {
    let finite = values.iter().filter(|value| value.is_finite());
    finite.fold(f64::MIN_POSITIVE, |most, v| most.max(v.abs()))
}

fn distance(got: &[f64], wanted: &[f64]) -> f64 {
    let differ = |(a, b): (&f64, &f64)| if a == b { 0.0 } else { (a - b).abs() };
    let worst = |worst: f64, d: f64| if d.is_nan() { f64::INFINITY } else { worst.max(d) };
    got.iter().zip(wanted).map(differ).fold(0.0, worst)
}

fn worst_of(before: f64, got: &[f64], wanted: &[f64]) -> f64 {
    before.max(distance(got, wanted) / largest(wanted))
}

/// The first layer at which the values of both networks part.
fn culprit(
    network: &Network,
    small: &Shrunk,
    weights: &[f32],
    stats: &[f32],
    data: &Dataset,
) -> Result<Option<String>> {
    let columns: Vec<usize> = small.inputs.iter().map(|c| *c as usize).collect();
    let whole_input = network.input_len() == small.network.input_len();
    let fewer = if whole_input { data.clone() } else { data.take_columns(&columns) };
    let (small_w, small_s) = (small.take(weights), small.take_stats(stats));
    for (at, node) in network.nodes().iter().enumerate() {
        let (Family::Weights { .. } | Family::Norm { .. }) = node.op.family() else { continue };
        let Some(became) = small.became[at] else { continue };
        let large = value_at(network, NodeId(at), weights, stats, data)?;
        let less = value_at(&small.network, became, &small_w, &small_s, &fewer)?;
        let kept = &small.channels[at];
        let read = |c: u32| small.read[at][c as usize];
        let (mut got, mut wanted) = (Vec::new(), Vec::new());
        for (large, less) in
            large.chunks_exact(node.shape.channels).zip(less.chunks_exact(kept.len().max(1)))
        {
            for (&c, value) in kept.iter().zip(less).filter(|(c, _)| read(**c)) {
                got.push(*value);
                wanted.push(large[c as usize]);
            }
        }
        if worst_of(0.0, &got, &wanted) > TOLERANCE {
            return Ok(Some(node.name.clone()));
        }
    }
    // Layers agree, so the difference is in what lies between the last of them and the output.
    Ok(Some(network.nodes()[network.output().0].name.clone()))
}

/// The values of one node, by a network that ends there.
fn value_at(
    network: &Network,
    node: NodeId,
    weights: &[f32],
    stats: &[f32],
    data: &Dataset,
) -> Result<Vec<f64>> {
    let part = up_to(network, node)?;
    let of = |table: &thinfer_engine::ParamTable, all: &thinfer_engine::ParamTable, v: &[f32]| {
        let found = table.iter().filter_map(|p| all.find(&p.name));
        found.flat_map(|p| wide(&v[p.range()])).collect::<Vec<f64>>()
    };
    let weights = of(part.params(), network.params(), weights);
    let stats = of(part.stats(), network.stats(), stats);
    let rows: Vec<u32> = (0..data.rows().min(ROWS) as u32).collect();
    Ok(ExactPlan::new(&part, rows.len())?.forward(&weights, &stats, data, &rows)?)
}

/// The part of a network that one node needs.
fn up_to(network: &Network, last: NodeId) -> Result<Network> {
    let nodes = network.nodes();
    let mut needed = vec![false; nodes.len()];
    needed[last.0] = true;
    for at in (0..=last.0).rev() {
        if needed[at] {
            nodes[at].inputs.iter().for_each(|from| needed[from.0] = true);
        }
    }
    let mut b = NetworkBuilder::image(nodes[0].shape);
    let mut became = vec![b.input(); nodes.len()];
    for (at, node) in nodes.iter().enumerate().take(last.0 + 1).skip(1) {
        if !needed[at] {
            continue;
        }
        let inputs: Vec<NodeId> = node.inputs.iter().map(|from| became[from.0]).collect();
        became[at] = b.like(node, &inputs)?;
    }
    Ok(b.finish(became[last.0], Loss::gaussian(1.0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_none_are_never_agreement() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        assert_eq!(worst_of(0.5, &[1.0, 2.0], &[1.0, 2.0]), 0.5);
        assert_eq!(worst_of(0.0, &[1.0], &[2.0]), 0.5);
        for (got, wanted) in [(1.0, inf), (inf, 1.0), (-inf, inf), (nan, 1.0), (1.0, nan)] {
            assert_eq!(worst_of(0.0, &[got, 1.0], &[wanted, 1.0]), inf, "{got} {wanted}");
        }
        assert_eq!(worst_of(0.0, &[inf, 1.0], &[inf, 1.0]), 0.0);
        assert_eq!(worst_of(0.0, &[inf, 1.0], &[inf, 2.0]), 0.5, "the rest is compared as well");
        let mut found = Agreement {
            inference: 0.0,
            loss: nan,
            gradient: 0.0,
            statistics: 0.0,
            tolerance: TOLERANCE,
            culprit: None,
        };
        assert!(!found.holds());
        found.loss = inf;
        assert!(!found.holds());
    }
}
