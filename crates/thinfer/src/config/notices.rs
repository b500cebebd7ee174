//! Settings that are allowed and probably not meant.

use super::{Cadence, Config, MethodKind};
use crate::train::Shrinking;

impl Config {
    /// What a user should hear before the run: schedules that its epochs are too few for, as after
    /// `--set train.epochs=600` on a file that was written for 3,000.
    pub fn notices(&self) -> Vec<String> {
        let epochs = self.train.epochs;
        let mut notices = Vec::new();
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
        if self.method.kind == MethodKind::EmMcmc {
            if prune.shrink == Shrinking::Always && prune.cadence == Cadence::Step {
                notices.push(
                    "prune.shrink is \"always\", but with prune.cadence = \"step\" training never goes on with a smaller network; set prune.cadence to \"epoch\" to have one".to_owned(),
                );
            }
            if prune.warm_up_epochs + 1 >= epochs {
                notices.push(format!(
                    "prune.warm_up_epochs is {}, but the run has {epochs} epochs, so nothing is pruned; give more train.epochs or a shorter warm-up",
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
}
