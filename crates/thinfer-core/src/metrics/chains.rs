//! Whether chains agree, and how many independent draws they are worth: rank-normalised split R̂
//! and effective sample sizes (Vehtari, Gelman, Simpson, Carpenter & Bürkner, *Bayesian Analysis*
//! 16, 2021).
//!
//! Of chains of different length the last draws are used; with an odd number the first of them is
//! left out, as chains are split in halves. A result is `None` with fewer than four draws a chain,
//! with a draw that is not finite, or when no half varies.

use super::{mean, normal_quantile, variance};

/// The larger of two rank-normalised split R̂: of the draws, and of their distances from the median
/// (section 4). Near 1 where all halves have one place and one width.
pub fn r_hat(chains: &[Vec<f64>]) -> Option<f64> {
    let chains = common_length(chains)?;
    let median = quantile(&chains, 0.5);
    let folded: Vec<Vec<f64>> =
        chains.iter().map(|chain| chain.iter().map(|x| (x - median).abs()).collect()).collect();
    let place = plain_r_hat(&rank_normalised(&chains))?;
    // Draws that lie on two values have one distance from the median: then their place says all.
    let width = plain_r_hat(&rank_normalised(&folded)).unwrap_or(place);
    Some(place.max(width))
}

/// The effective sample size in the bulk: of the rank-normalised draws (section 3.2).
pub fn bulk_ess(chains: &[Vec<f64>]) -> Option<f64> {
    plain_ess(&rank_normalised(&common_length(chains)?))
}

/// The effective sample size in the tails: the smaller one of the shares below the 5 % and the 95 %
/// quantile (section 4.3).
pub fn tail_ess(chains: &[Vec<f64>]) -> Option<f64> {
    let chains = common_length(chains)?;
    let below = |q: f64| {
        let limit = quantile(&chains, q);
        let inside = |x: &f64| if *x <= limit { 1.0 } else { 0.0 };
        let shares: Vec<Vec<f64>> =
            chains.iter().map(|chain| chain.iter().map(inside).collect()).collect();
        plain_ess(&shares)
    };
    Some(below(0.05)?.min(below(0.95)?))
}

/// √(V̂ / W) of halves.
fn plain_r_hat(chains: &[Vec<f64>]) -> Option<f64> {
    let halves = Halves::of(chains)?;
    Some((halves.total / halves.within).sqrt())
}

/// By Geyer's initial monotone sequence on halves, with the last term of an even lag (as Stan and
/// ArviZ do).
fn plain_ess(chains: &[Vec<f64>]) -> Option<f64> {
    let halves = Halves::of(chains)?;
    let length = halves.draws[0].len();
    let centred: Vec<Vec<f64>> = halves
        .draws
        .iter()
        .map(|half| {
            let centre = half.iter().sum::<f64>() / length as f64;
            half.iter().map(|x| x - centre).collect()
        })
        .collect();
    let correlation = |lag: usize| {
        let product =
            |half: &Vec<f64>| half.iter().zip(&half[lag..]).map(|(a, b)| a * b).sum::<f64>();
        let covariance = centred.iter().map(product).sum::<f64>() / (length * centred.len()) as f64;
        1.0 - (halves.within - covariance) / halves.total
    };
    // Sums of neighbours are positive and fall in theory; where they stop to, noise begins. Of the
    // last pair only the even lag counts, and once.
    let (mut pairs, mut last) = (Vec::new(), (1.0, correlation(1)));
    for lag in (2..length.saturating_sub(2)).step_by(2) {
        if last.0 + last.1 <= 0.0 {
            break;
        }
        pairs.push(last);
        last = (correlation(lag), correlation(lag + 1));
    }
    let left_over = if last.0 + last.1 >= 0.0 { last.0 } else { last.0.max(0.0) };
    let mut sums: Vec<f64> = pairs.iter().map(|(even, odd)| even + odd).collect();
    for at in 1..sums.len() {
        sums[at] = sums[at].min(sums[at - 1]);
    }
    let draws = (length * centred.len()) as f64;
    // A chain that swings can beat independent draws, but not without bound (as in Stan).
    let time = (2.0 * sums.iter().sum::<f64>() - 1.0 + left_over).max(1.0 / draws.log10());
    Some(draws / time)
}

/// The last draws of every chain, as many of each.
fn common_length(chains: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let shortest = chains.iter().map(Vec::len).min()? / 2 * 2;
    let enough = shortest >= 4 && chains.iter().flatten().all(|x| x.is_finite());
    enough.then(|| chains.iter().map(|chain| chain[chain.len() - shortest..].to_vec()).collect())
}

/// Every draw replaced by the normal quantile of its rank among all: Φ⁻¹((r − 3/8) / (S + 1/4)),
/// equal draws by that of their mean rank.
fn rank_normalised(chains: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut order: Vec<(usize, usize)> = chains
        .iter()
        .enumerate()
        .flat_map(|(chain, draws)| (0..draws.len()).map(move |draw| (chain, draw)))
        .collect();
    order.sort_by(|a, b| chains[a.0][a.1].total_cmp(&chains[b.0][b.1]));
    let value = |at: usize| chains[order[at].0][order[at].1];
    let mut scores: Vec<Vec<f64>> = chains.iter().map(|draws| vec![0.0; draws.len()]).collect();
    let mut from = 0;
    while from < order.len() {
        let equal = (from..order.len()).take_while(|at| value(*at) == value(from)).count();
        let rank = from as f64 + f64::midpoint(equal as f64, 1.0);
        let score = normal_quantile((rank - 0.375) / (order.len() as f64 + 0.25));
        for (chain, draw) in &order[from..from + equal] {
            scores[*chain][*draw] = score;
        }
        from += equal;
    }
    scores
}

/// A quantile of all draws, between neighbours where it falls between them.
fn quantile(chains: &[Vec<f64>], q: f64) -> f64 {
    let mut all: Vec<f64> = chains.iter().flatten().copied().collect();
    all.sort_by(f64::total_cmp);
    super::quantile_of_sorted(&all, q)
}

/// Chains cut in two.
struct Halves<'a> {
    draws: Vec<&'a [f64]>,
    /// W, the mean variance within a half.
    within: f64,
    /// V̂ = (n − 1)/n W + B/n, where B/n is the variance of the means.
    total: f64,
}

impl<'a> Halves<'a> {
    fn of(chains: &'a [Vec<f64>]) -> Option<Self> {
        let n = chains.first()?.len() / 2;
        let draws: Vec<&[f64]> = chains.iter().flat_map(|chain| chain.chunks_exact(n)).collect();
        let within = mean(draws.iter().map(|half| variance(half)))?;
        if within <= 0.0 {
            return None;
        }
        let means: Vec<f64> =
            draws.iter().map(|half| half.iter().sum::<f64>() / n as f64).collect();
        let total = within * (n as f64 - 1.0) / n as f64 + variance(&means);
        Some(Self { draws, within, total })
    }
}
