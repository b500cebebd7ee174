//! Schedules scaled down to fewer epochs, to see in an hour what a table would look like.

use thinfer_data::{Error, Result};
use thinfer_run::config::Config;
use toml::{Table, Value};

/// Intervals of the log: they say how often, not when.
const INTERVALS: [&str; 2] = ["train.record_every_epochs", "train.evaluate_every_epochs"];

/// The configuration with its whole schedule scaled to `epochs`; `None` where it has no more.
///
/// With f = `epochs` / `train.epochs`, every number of epochs becomes f times itself: warm-ups, the
/// epochs in which the step size drops, the last one in which a mask may change, those with noise.
/// Whole numbers are rounded and stay at least 1 where they were, and drops stay apart. The number
/// of cycles stays; of the samples at the end of each, f times as many are taken, at least one, as
/// a sample must lie where the step size is small. Everything else is left alone.
pub fn shortened(config: &Config, epochs: usize) -> Result<Option<Config>> {
    let whole = config.train.epochs;
    if epochs >= whole {
        return Ok(None);
    }
    let step_size = &config.schedule.step_size;
    let cycles = config.schedule.step_size.schedule(1).cycles(whole).len();
    let least = cycles.max(step_size.at_epochs.len()) + 1;
    if epochs < least {
        let problem = format!(
            "is {epochs}, but the schedule has {} cycles and {} drops of the step size; give at least {least}",
            cycles,
            step_size.at_epochs.len()
        );
        return Err(Error::config("--budget-epochs", problem));
    }
    let text = config.to_toml()?;
    let table: Table = toml::from_str(&text)
        .map_err(|e| Error::config("", format!("cannot be read again: {e}")))?;
    let scale = Scale { factor: epochs as f64 / whole as f64, epochs };
    let mut settings = Vec::new();
    scale.walk("", &table, &mut settings);
    Config::parse(&text, &settings).map(Some)
}

struct Scale {
    factor: f64,
    epochs: usize,
}

impl Scale {
    fn walk(&self, prefix: &str, table: &Table, into: &mut Vec<String>) {
        for (name, value) in table {
            let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match value {
                Value::Table(inner) => self.walk(&key, inner, into),
                other => into.extend(self.value(&key, other).map(|v| format!("{key}={v}"))),
            }
        }
    }

    /// What a key becomes where it changes.
    fn value(&self, key: &str, value: &Value) -> Option<Value> {
        if key == "train.epochs" {
            return Some(Value::Integer(self.epochs as i64));
        }
        let counts = key.ends_with("_epochs") || key == "train.samples_per_cycle";
        if !counts || INTERVALS.contains(&key) {
            return None;
        }
        match value {
            Value::Integer(number) => Some(Value::Integer(self.whole(*number))),
            Value::Float(number) => Some(Value::Float(number * self.factor)),
            Value::Array(numbers) => {
                let mut last = 0;
                let all = numbers.iter().filter_map(Value::as_integer).map(|number| {
                    last = self.whole(number).max(last + 1);
                    Value::Integer(last)
                });
                Some(Value::Array(all.collect()))
            }
            _ => None,
        }
    }

    fn whole(&self, number: i64) -> i64 {
        ((number as f64 * self.factor).round() as i64).max(number.min(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(text: &str, epochs: usize) -> Config {
        shortened(&Config::parse(text, &[]).unwrap(), epochs).unwrap().unwrap()
    }

    /// 200 epochs in four cycles, pruned; the paper's numbers for CIFAR.
    const CYCLES: &str = r#"
data.kind = "cifar10"
prune = { target = 0.9, warm_up_epochs = 20, freeze_after_cycles = 3 }
schedule.step_size = { value = 1.0, shape = "cyclical", cycles = 4 }
train = { epochs = 200, batch = 64, samples_per_cycle = 3 }
"#;
    /// 200 epochs with three drops.
    const DROPS: &str = r#"
data.kind = "cifar10"
method.kind = "dsr"
prune.freeze_after_epochs = 190
schedule.step_size = { value = 0.1, shape = "steps", at_epochs = [60, 120, 160] }
train.epochs = 200
"#;

    #[test]
    fn everything_in_epochs_is_scaled_and_the_rest_is_not() {
        let whole = Config::parse(CYCLES, &[]).unwrap();
        let config = short(CYCLES, 20);
        assert_eq!((config.train.epochs, config.train.samples_per_cycle), (20, 1));
        assert_eq!((config.prune.warm_up_epochs, config.prune.freeze_after_cycles), (2, Some(3)));
        assert_eq!(config.schedule.step_size.cycles, 4);
        assert_eq!((config.train.batch, config.prune.target), (64, Some(0.9)));
        assert_eq!(config.train.evaluate_every_epochs, whole.train.evaluate_every_epochs);
        assert_ne!(config.fingerprint().unwrap(), whole.fingerprint().unwrap());

        let config = short(DROPS, 20);
        assert_eq!(config.schedule.step_size.at_epochs, [6, 12, 16]);
        assert_eq!(config.prune.freeze_after_epochs, Some(19));
        // Drops that would fall together stay apart, and none comes before the first epoch.
        assert_eq!(short(DROPS, 5).schedule.step_size.at_epochs, [2, 3, 4]);

        let noisy = "data.kind = \"cifar10\"\nmethod = { kind = \"csgld\", sampling_epochs = 5 }\n\
                     schedule.step_size.warm_up_epochs = 50.0\ntrain.epochs = 200\n";
        let config = short(noisy, 10);
        assert_eq!(config.schedule.step_size.warm_up_epochs, 2.5);
        assert_eq!(config.method.own.whole("sampling_epochs"), Some(1), "some noise is left");
    }

    /// Whatever is shipped can be scaled down.
    #[test]
    fn every_row_of_the_paper_has_a_short_form() {
        use super::super::{PaperTable, Plan};
        for table in [PaperTable::Table1, PaperTable::Table2, PaperTable::Table3] {
            let mut plan = Plan::new(table, &[], vec![1]).unwrap();
            plan.budget_epochs = Some(20);
            for row in &plan.rows {
                if let Some((config, is_short)) = plan.config(row, 1).unwrap() {
                    assert_eq!((config.train.epochs, is_short), (20, true), "{}", row.name());
                }
            }
        }
    }

    #[test]
    fn enough_epochs_change_nothing_and_too_few_are_refused() {
        let config = Config::parse(DROPS, &[]).unwrap();
        assert_eq!(shortened(&config, 200).unwrap(), None);
        assert_eq!(shortened(&config, 300).unwrap(), None);
        let error = shortened(&config, 3).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("at least 4"), "{error}");
    }
}
