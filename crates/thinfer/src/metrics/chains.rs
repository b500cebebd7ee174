//! Whether chains agree, and how many independent draws they are worth.

use super::{mean, variance};

/// Split R̂ (Gelman et al., *Bayesian Data Analysis*, 3rd ed., section 11.4): √(V̂ / W), each chain
/// cut into two halves, where W is the mean variance within halves and V̂ that of all draws.
///
/// Of chains of different length the last draws are used; with an odd number the first of them is
/// left out. `None` with fewer than four draws a chain, with a draw that is not finite, or when no
/// half varies.
pub fn split_r_hat(chains: &[Vec<f64>]) -> Option<f64> {
    let halves = Halves::of(chains)?;
    Some((halves.total / halves.within).sqrt())
}

/// The effective sample size of the mean over all chains, by the initial monotone sequence on
/// split chains (Vehtari, Gelman, Simpson, Carpenter & Bürkner, *Bayesian Analysis* 16, 2021,
/// section 3.2, without rank normalisation). `None` where [`split_r_hat`] is.
pub fn effective_sample_size(chains: &[Vec<f64>]) -> Option<f64> {
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
        // Over n − 1 as W is, so that lag 0 has correlation 1 in a single half.
        let covariance =
            centred.iter().map(product).sum::<f64>() / ((length - 1) * centred.len()) as f64;
        1.0 - (halves.within - covariance) / halves.total
    };
    let draws = (length * centred.len()) as f64;
    // Sums of neighbours are positive and fall in theory; where they stop to, noise begins.
    let (mut sum, mut last) = (0.0, f64::INFINITY);
    for lag in (0..length.saturating_sub(1)).step_by(2) {
        let pair = correlation(lag) + correlation(lag + 1);
        if pair <= 0.0 {
            break;
        }
        last = pair.min(last);
        sum += last;
    }
    // A chain that swings can beat independent draws, but not without bound (as in Stan).
    let time = (2.0 * sum - 1.0).max(1.0 / draws.log10());
    Some(draws / time)
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
        let shortest = chains.iter().map(Vec::len).min()?;
        if shortest < 4 || chains.iter().flatten().any(|x| !x.is_finite()) {
            return None;
        }
        let n = shortest / 2;
        let draws: Vec<&[f64]> =
            chains.iter().flat_map(|chain| chain[chain.len() - 2 * n..].chunks_exact(n)).collect();
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

// The arithmetic below them.
