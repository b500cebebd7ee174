//! Settings that are allowed and probably not meant.

use std::collections::BTreeMap;

use thinfer_core::methods::em_mcmc::{Assignment, Cadence};
use thinfer_core::shrink::Shrinking;
use toml::{Table, Value};

use super::{Config, DataKind};

impl Config {
    /// What a user should hear before the run: settings that its data has no use for, and schedules
    /// that its epochs are too few for, as after `--set train.epochs=600` on a file that was
    /// written for 3,000.
    pub fn notices(&self) -> Vec<String> {
        let epochs = self.train.epochs;
        let mut notices = self.unused();
        for (name, what, schedule) in [
            ("temperature", "the temperature", &self.schedule.temperature),
            ("step_size", "the step size", &self.schedule.step_size),
        ] {
            if schedule.warm_up_epochs >= epochs as f64 {
                notices.push(format!(
                    "schedule.{name}.warm_up_epochs is {}, but the run has {epochs} epochs, so {what} never gets to its value; give more train.epochs or a warm-up of about {}",
                    schedule.warm_up_epochs,
                    epochs / 2
                ));
            }
        }
        let prune = &self.prune;
        if self.method.kind.name() == "em-mcmc" {
            if prune.shrink == Shrinking::Always && prune.cadence == Cadence::Step {
                notices.push(
                    "prune.shrink is \"always\", but with prune.cadence = \"step\" training never goes on with a smaller network; set prune.cadence to \"epoch\" to have one".to_owned(),
                );
            }
            if prune.warm_up_epochs + 1 >= epochs {
                let nothing = match self.prior.assignment {
                    Assignment::Mode => "nothing is pruned",
                    Assignment::Draw => "no assignment is drawn",
                };
                notices.push(format!(
                    "prune.warm_up_epochs is {}, but the run has {epochs} epochs, so {nothing}; give more train.epochs or a shorter warm-up",
                    prune.warm_up_epochs
                ));
            }
            if let Some(last) = prune.freeze_after_epochs.filter(|&last| last + 1 >= epochs) {
                notices.push(format!(
                    "prune.freeze_after_epochs is {last}, but the run has {epochs} epochs, so the mask can change to the end and few samples share it; give more train.epochs or an end of pruning at about {}",
                    epochs * 2 / 3
                ));
            }
        }
        notices
    }

    /// Keys of the data that its kind does not read, where they have another value than when nobody
    /// gives them: the configuration of a finished run has all of them.
    fn unused(&self) -> Vec<String> {
        let kind = self.data.kind;
        let word = |text: &str| Value::String(text.to_owned());
        let mut least = BTreeMap::from([("data.kind".to_owned(), word(kind.name()))]);
        if kind == DataKind::Table {
            least.extend(["data.path", "data.target"].map(|key| (key.to_owned(), word("x"))));
        }
        let data = |config: &Config| Table::try_from(&config.data).unwrap_or_default();
        let usual = Config::resolve(&least).map_or_else(|_| data(self), |config| data(&config));
        let unused = |(key, value): &(String, Value)| {
            !kind.reads(key) && usual.get(key).is_none_or(|usual| usual != value)
        };
        let tell = |(key, _): (String, Value)| {
            format!("data.{key} is given, but data.kind = \"{}\" has no use for it", kind.name())
        };
        data(self).into_iter().filter(unused).map(tell).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notices(epochs: usize) -> Vec<String> {
        let text = include_str!("../../../../configs/example1.toml");
        Config::parse(text, &[format!("train.epochs={epochs}")]).unwrap().notices()
    }

    #[test]
    fn a_run_too_short_for_its_schedules_is_noticed_and_the_shipped_one_is_not() {
        assert_eq!(notices(3000), Vec::<String>::new());
        let short = notices(600);
        assert_eq!(short.len(), 2, "{short:?}");
        assert!(short[0].contains("schedule.temperature.warm_up_epochs is 1500"), "{short:?}");
        assert!(short[0].contains("about 300"), "{short:?}");
        assert!(short[1].contains("prune.freeze_after_epochs is 1999"), "{short:?}");
        assert!(notices(50)[1].contains("nothing is pruned"));
    }

    #[test]
    fn a_network_that_never_gets_smaller_although_it_should_is_noticed() {
        let found = |settings: &[&str]| {
            let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
            let notices = Config::parse("", &settings).unwrap().notices();
            notices.iter().filter(|notice| notice.contains("prune.cadence")).count()
        };
        assert_eq!(found(&["preset=paper", "prune.shrink=always"]), 1);
        assert_eq!(found(&["preset=paper", "prune.shrink=always", "prune.cadence=epoch"]), 0);
        assert_eq!(found(&["preset=paper"]), 0);
    }
    #[test]
    fn keys_that_the_data_has_no_use_for_are_noticed() {
        let of = |settings: &[&str]| {
            let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
            let config = Config::parse("", &settings).unwrap();
            // A finished run has its whole configuration in a file, and nobody gave most of it.
            let again = Config::parse(&config.to_toml().unwrap(), &[]).unwrap();
            assert_eq!(again.unused(), config.unused());
            config.unused()
        };
        let table = ["data.kind=table", "data.path=a.csv", "data.target=y"];
        assert!(of(&table).is_empty());
        let given = of(&[&table[..], &["data.image_size=64", "data.holdout=0.1"]].concat());
        assert_eq!(given.len(), 1, "{given:?}");
        assert!(given[0].starts_with("data.image_size is given, but data.kind = \"table\""));
        assert_eq!(of(&["data.kind=example2", "data.holdout=0.1", "data.columns=9"]).len(), 1);
        assert_eq!(of(&["data.kind=shapes", "data.train_rows=99", "data.path=x"]).len(), 1);
        assert_eq!(of(&["data.kind=cifar10", "data.train_rows=99", "data.flip=false"]).len(), 1);
        assert!(of(&["data.kind=example1", "data.variant=text", "data.seed=3"]).is_empty());
    }
}
