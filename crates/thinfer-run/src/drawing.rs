//! Whether steps and temperature suit a chain that draws its assignments to spike and slab.

use thinfer_core::methods::em_mcmc::Assignment;
use thinfer_data::{Error, Result};

use crate::config::Config;

/// τ where its rate η is 0, and where every chain starts.
const TAU: f64 = 0.5;
/// How much wider than the spike its weights may be before a word is said.
const TOO_WIDE: f64 = 0.05;
/// How far from that of the posterior a temperature may be before a word is said.
const OTHER: f64 = 0.01;

/// What the length of a step does to a weight in the spike: x = τ β₂ Δt² wd₀ / (2 (1 + β₁)). The
/// variance of the weight is 1/(1 − x) times that of the spike, and from x = 1 on it grows without
/// end. `None` where nothing is drawn.
fn step_in_spike(config: &Config, rows: usize) -> Option<f64> {
    if config.prior.assignment != Assignment::Draw {
        return None;
    }
    let method = &config.method;
    let spike_decay = config.prior.for_rows(rows).spike_decay;
    let decay = spike_decay * config.schedule.weight_decay.schedule(rows).value;
    let step_size = config.schedule.step_size.schedule(rows).value;
    Some(TAU * method.beta2 * step_size * decay / (2.0 * (1.0 + method.beta1)))
}

/// Refuses steps with which weights in the spike blow up.
pub(crate) fn check(config: &Config, rows: usize) -> Result<()> {
    let Some(x) = step_in_spike(config, rows).filter(|x| *x >= 1.0) else { return Ok(()) };
    let step_size = config.schedule.step_size.schedule(rows).value;
    let problem = format!(
        "is {step_size}, and weights in the spike are stable below {:.2e} only; give at most {:.1e}, or a wider spike (prior.spike_sd)",
        step_size / x,
        step_size / x * TOO_WIDE
    );
    Err(Error::config("schedule.step_size.value", problem))
}

/// What a user should hear before such a run.
pub(crate) fn notes(config: &Config, rows: usize) -> Vec<String> {
    let Some(x) = step_in_spike(config, rows) else { return Vec::new() };
    let mut notes = Vec::new();
    if x > TOO_WIDE {
        let step_size = config.schedule.step_size.schedule(rows).value;
        notes.push(format!(
            "schedule.step_size.value is {step_size}, with which weights in the spike have {:.0} % more variance than the prior says, so variables look more probable than they are; give at most {:.1e}",
            100.0 * x / (1.0 - x),
            step_size / x * TOO_WIDE
        ));
    }
    let k = config.schedule.temperature.schedule(rows).value;
    let temperature = k * k * rows as f64 / config.method.beta2;
    if (temperature - 1.0).abs() > OTHER {
        notes.push(format!(
            "schedule.temperature.value and method.beta2 make {temperature:.3} times the temperature of the posterior, but assignments are drawn at 1; use \"1/sqrt(N)\" and 1"
        ));
    }
    if config.train.batch < rows {
        notes.push(format!(
            "train.batch is {}, and the noise of mini-batches warms the weights; assignments are drawn as if there were none, so take all {rows} rows a step, or look at the temperature that `eval` estimates",
            config.train.batch
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &[&str]) -> Config {
        let usual = ["prior.assignment=draw", "train.batch=1000000", "prior.sd=1.0"];
        let all = usual.iter().chain(more).map(|set| (*set).to_owned());
        Config::parse("", &all.collect::<Vec<_>>()).unwrap()
    }

    /// N = 100 and a spike of 0.05: wd₀ = 1/(0.0025 · 100) = 4, so steps below
    /// 2 (1 + 0.9)/(½ · 4) = 1.9 are stable.
    #[test]
    fn steps_that_are_too_long_for_the_spike_are_refused_or_noticed() {
        let with = |step: &str| config(&["prior.spike_sd=0.05", step]);
        let error = check(&with("schedule.step_size.value=2.0"), 100).unwrap_err().to_string();
        assert!(
            error.contains("stable below 1.90e0") && error.contains("at most 9.5e-2"),
            "{error}"
        );
        let large = with("schedule.step_size.value=0.38");
        check(&large, 100).unwrap();
        let told = notes(&large, 100);
        assert!(told[0].contains("25 % more variance"), "{told:?}");
        assert_eq!(notes(&with("schedule.step_size.value=0.09"), 100), Vec::<String>::new());
        // The spike is as wide on more rows, and its decay is smaller.
        check(&with("schedule.step_size.value=2.0"), 200).unwrap();
    }

    #[test]
    fn another_temperature_and_mini_batches_are_noticed_only_where_assignments_are_drawn() {
        let warm = ["schedule.temperature.value=0.2", "train.batch=50"];
        let told = notes(&config(&warm), 100);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("4.000 times") && told[1].contains("all 100 rows"), "{told:?}");
        let mode = warm.map(str::to_owned);
        assert!(notes(&Config::parse("", &mode).unwrap(), 100).is_empty());
    }
}
