//! Whether to believe a run: one sentence that terminal and report begin with.

use serde::Serialize;
use thinfer_core::metrics::Pit;
use thinfer_core::train::ChainResult;

use super::convergence::{AGREED, LEAST_SAMPLES};
use super::{Behaviour, Beside, Convergence, LEVEL, MOST_CLIPPED, Quality};
use thinfer_core::methods::em_mcmc::Assignment;

use crate::config::{Config, NoiseModel};

/// Independent draws below which the ends of intervals are rough (Vehtari et al. ask for so many of
/// each chain).
const FEWEST_DRAWS: f64 = 100.0;
/// Samples are spread too widely where their temperature is so many times the one asked for.
const WARM: f64 = 1.5;
/// Predictions that are further from what happens than this mislead.
const FAR_FROM_UNIFORM: f64 = 0.1;
/// Coverage further than this from its level is wrong.
const MISCOVERED: f64 = 0.05;
/// A log loss or calibration error that is larger by this is said before all scores.
const WORSE: f64 = 0.01;
/// A distance that chance leaves more often is none.
const BY_CHANCE: f64 = 0.01;
/// A calibration error of classes above this misleads, where chance does not leave half as much.
const FAR_FROM_CALIBRATED: f64 = 0.05;

/// What of a run can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Belief {
    /// Its predictions, and how sure they are.
    Yes,
    /// Its predictions, but not how sure they are.
    Partly,
    /// Nobody can tell yet.
    Unknown,
    /// Nothing.
    No,
}

/// Whether to believe a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// What can be believed.
    pub believe: Belief,
    /// The same as a sentence: why, and what to do.
    pub sentence: String,
    /// What else is doubtful, gravest first.
    pub more: Vec<String>,
    /// What is to be said before all scores: that the run was hardly worth its time, or did not do
    /// what was asked for. Each with what to do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cautions: Vec<String>,
}

/// How far probabilities of classes are from what happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calibrated {
    /// The expected calibration error.
    pub ece: f64,
    /// What chance alone leaves of it.
    pub by_chance: f64,
}

/// What a verdict looks at.
pub(crate) struct Evidence<'a> {
    pub config: &'a Config,
    pub results: &'a [ChainResult],
    pub blown_up: &'a [u32],
    pub convergence: &'a Convergence,
    pub behaviour: &'a Behaviour,
    /// Samples that are averaged.
    pub members: usize,
    /// A constant that predicts no worse, in words.
    pub no_better_than: Option<&'static str>,
    /// A constant and a linear model on the same rows.
    pub beside: Option<&'a Beside>,
    /// How often the nearest mean of a class is right, and the posterior; of images.
    pub nearest_mean: Option<(f64, f64)>,
    /// Whether all weights are left.
    pub prunes_nothing: bool,
    /// Of numbers.
    pub pit: Option<&'a Pit>,
    /// Whether these numbers are counts.
    pub counts: bool,
    /// Of classes.
    pub calibrated: Option<Calibrated>,
    /// Of the posterior, and of the last samples alone.
    pub qualities: [Quality; 2],
}

/// A reason not to believe a run, with what to do.
struct Doubt {
    against: Belief,
    problem: String,
    advice: String,
}

impl Doubt {
    fn new(against: Belief, problem: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { against, problem: problem.into(), advice: advice.into() }
    }
}

impl Verdict {
    pub(crate) fn of(evidence: &Evidence<'_>) -> Self {
        let cautions = evidence.cautions().map(told).collect();
        let mut doubts = doubts(evidence);
        // Those that weigh the same stay in their order.
        doubts.sort_by_key(|doubt| std::cmp::Reverse(doubt.against));
        let mut doubts = doubts.into_iter();
        let Some(Doubt { against, problem, advice }) = doubts.next() else {
            let sentence = format!("Believe this run: {}.", evidence.in_favour());
            return Self { believe: Belief::Yes, sentence, more: Vec::new(), cautions };
        };
        let begin = match against {
            Belief::No => "Do not believe this run",
            Belief::Unknown => "Nobody can tell yet whether to believe this run",
            Belief::Partly => "Believe the predictions of this run, but not how sure they are",
            Belief::Yes => "Believe this run, though it did not do what was asked for",
        };
        Self {
            believe: against,
            sentence: format!("{begin}: {problem}; {advice}."),
            more: doubts.map(told).collect(),
            cautions,
        }
    }
}

/// A doubt with what to do.
fn told(doubt: Doubt) -> String {
    let Doubt { problem, advice, .. } = doubt;
    format!("{problem}; {advice}")
}

fn doubts(evidence: &Evidence<'_>) -> Vec<Doubt> {
    let mut found = Vec::new();
    found.extend(evidence.blow_up());
    found.extend(evidence.learned_nothing());
    found.extend(evidence.loses_to_simple());
    found.extend(evidence.disagreement());
    found.extend(evidence.unfinished());
    found.extend(evidence.without_samples());
    found.extend(evidence.temperature());
    found.extend(evidence.miscalibrated());
    found.extend(evidence.worse_than_last());
    found.extend(evidence.few_draws());
    found.extend(evidence.prunes_nothing());
    found
}

impl Evidence<'_> {
    fn blow_up(&self) -> Option<Doubt> {
        let [first, ..] = self.blown_up else { return None };
        let chains = self.results.len();
        let which = match self.blown_up.len() {
            1 => format!("chain {first} of {chains} blew up"),
            several => format!("{several} of {chains} chains blew up"),
        };
        let advice = "train again with a smaller `schedule.step_size.value`";
        Some(Doubt::new(Belief::No, which, advice))
    }

    fn learned_nothing(&self) -> Option<Doubt> {
        let advice = "train longer, or ask whether the inputs say anything about the target";
        if let Some(constant) = self.no_better_than {
            let problem = format!("on the test rows it is no better than {constant}");
            return Some(Doubt::new(Belief::No, problem, advice));
        }
        let hardly = self.beside.filter(|beside| beside.hardly_better_than_constant)?;
        let problem = match (hardly.posterior.rmse, hardly.constant.rmse) {
            (Some(ours), Some(constant)) => format!(
                "on the test rows it is hardly better than a constant (RMSE {} against {})",
                shown(ours),
                shown(constant)
            ),
            _ => "on the test rows it is hardly better than the most frequent class".to_owned(),
        };
        Some(Doubt::new(Belief::No, problem, advice))
    }

    /// Something simple predicts better.
    fn loses_to_simple(&self) -> Option<Doubt> {
        if let Some((nearest, ours)) = self.nearest_mean
            && nearest >= ours
        {
            let problem = format!(
                "the nearest mean image of a class is right as often ({} against {})",
                percent(nearest),
                percent(ours)
            );
            return Some(Doubt::new(
                Belief::No,
                problem,
                "train longer (`--minutes`, `train.epochs`)",
            ));
        }
        let beside = self.beside.filter(|beside| beside.loses_to_linear)?;
        let (ours, linear) = (&beside.posterior, beside.linear.as_ref()?);
        let than = match (ours.rmse.zip(linear.rmse), ours.log_loss.zip(linear.log_loss)) {
            (Some((ours, linear)), _) => {
                format!("RMSE {} against {}", shown(ours), shown(linear))
            }
            (_, Some((ours, linear))) => {
                format!("log loss {} against {}", shown(ours), shown(linear))
            }
            _ => return None,
        };
        let problem = format!("on the test rows a linear model on all columns is better ({than})");
        let advice = "train longer (`--minutes`), or take the linear form (`model.hidden = []`) or `thinfer select`";
        Some(Doubt::new(Belief::No, problem, advice))
    }

    /// Nothing was pruned by a method that was to.
    fn prunes_nothing(&self) -> Option<Doubt> {
        let kind = self.config.method.kind;
        let prunes = kind.name() == "em-mcmc" || kind.is_sparse();
        let draws = self.config.prior.assignment == Assignment::Draw;
        if !self.prunes_nothing || !prunes || draws {
            return None;
        }
        let asked = match self.config.prune.target {
            Some(target) => format!("of the {} to prune", percent(target)),
            None => "though the method prunes".to_owned(),
        };
        let problem = format!("nothing was pruned {asked}");
        let advice = match self.config.prune.target {
            Some(_) => "train longer, or begin to prune earlier (`prune.warm_up_epochs`)",
            None => "say how much with `prune.target`, such as 0.5",
        };
        Some(Doubt::new(Belief::Yes, problem, advice))
    }

    /// Whether the average is so much worse than the last samples that it is not chance.
    fn loses_much(&self) -> bool {
        let [posterior, last] = self.qualities;
        let worse = |ours: Option<f64>, theirs: Option<f64>| {
            ours.zip(theirs).is_some_and(|(ours, theirs)| ours > theirs + WORSE)
        };
        worse(posterior.nll, last.nll) || worse(posterior.ece, last.ece)
    }

    /// What is said before all scores.
    fn cautions(&self) -> impl Iterator<Item = Doubt> {
        let found = [
            self.learned_nothing(),
            self.loses_to_simple(),
            self.worse_than_last().filter(|_| self.loses_much()),
            self.prunes_nothing(),
        ];
        found.into_iter().flatten()
    }

    /// How to get more samples.
    fn longer(&self) -> &'static str {
        if self.config.stages().is_some() {
            "raise `train.samples_per_cycle` and `train.epochs`, or `chains`"
        } else if self.config.cycles().len() > 1 {
            "raise `train.epochs` with `schedule.step_size.cycles`, or `chains`"
        } else {
            "raise `train.samples_per_cycle` and `train.epochs`, or `chains`"
        }
    }

    fn disagreement(&self) -> Option<Doubt> {
        if !self.behaviour.adds_noise() {
            return None;
        }
        let found = self.convergence;
        let Some(predictions) = found.predictions else {
            let problem = format!(
                "{} {} too few to compare, as R-hat needs {LEAST_SAMPLES} of each chain",
                found.sampled(),
                if (found.samples, found.chains) == (1, 1) { "is" } else { "are" }
            );
            return Some(Doubt::new(Belief::Unknown, problem, self.longer()));
        };
        (predictions.r_hat > AGREED).then(|| {
            let who = match found.chains {
                1 => "the two halves of its chain disagree".to_owned(),
                several => format!("its {several} chains disagree"),
            };
            let problem = format!(
                "{who} (R-hat {:.2} of predictions, at most {AGREED} is wanted)",
                predictions.r_hat
            );
            // What predicts rows well that it has not seen is right on average, however its chains
            // share the work.
            let tested = self.beside.is_some_and(Beside::is_worth_its_time);
            let against = if tested { Belief::Partly } else { Belief::No };
            Doubt::new(against, problem, self.longer())
        })
    }

    fn unfinished(&self) -> Option<Doubt> {
        let ended = self.results.iter().all(|result| has_ended(self.config, result));
        if ended && self.results.len() >= self.config.chains {
            return None;
        }
        let advice = "go on with `thinfer train config.toml --resume` in its folder";
        Some(Doubt::new(Belief::Unknown, "it is not finished", advice))
    }

    fn without_samples(&self) -> Option<Doubt> {
        let advice = "take more samples a cycle, or more chains";
        if !self.behaviour.adds_noise() {
            let name = self.config.method.kind.name();
            let problem = format!("`{name}` does not sample the posterior");
            let advice = "sample with another method, such as `sghmc`, or trust its scores alone";
            return Some(Doubt::new(Belief::Partly, problem, advice));
        }
        (self.members == 1).then(|| {
            let problem = "its posterior is a single sample";
            Doubt::new(Belief::Partly, problem, advice)
        })
    }

    fn temperature(&self) -> Option<Doubt> {
        let (seen, asked) = (self.behaviour, self.behaviour.temperature_times_n);
        if let Some(found) = seen.temperature.filter(|found| !found.valid) {
            let problem = format!(
                "{} of the sampling steps were clipped (at most {} is wanted), so the temperature of its samples is not known",
                percent(found.clipped_sampling_share),
                percent(MOST_CLIPPED)
            );
            let advice = "lower `schedule.step_size.value`, or raise `method.clip`";
            return Some(Doubt::new(Belief::Partly, problem, advice));
        }
        let advice = "take larger batches (`train.batch`) or smaller steps";
        if let Some(measured) = seen.measured {
            let is_warm = measured.value - 2.0 * measured.error > WARM * asked;
            return is_warm.then(|| {
                let problem = format!(
                    "its samples are spread too widely, at {:.2} ± {:.2} times the temperature of the posterior",
                    measured.value, measured.error
                );
                Doubt::new(Belief::Partly, problem, advice)
            });
        }
        let found = seen.temperature?;
        (found.total > WARM * found.injected.max(asked)).then(|| {
            let problem = format!(
                "its samples are spread too widely, at about {:.2} times the temperature of the posterior",
                found.total
            );
            Doubt::new(Belief::Partly, problem, advice)
        })
    }

    fn miscalibrated(&self) -> Option<Doubt> {
        if let Some(pit) = self.pit {
            let held = self.held().unwrap_or(LEVEL);
            let chance = 3.0 * (LEVEL * (1.0 - LEVEL) / pit.rows.max(1) as f64).sqrt();
            let off = held - LEVEL;
            // A count cannot be cut finer, so its intervals hold more than they say.
            let miscovers = off.abs() > MISCOVERED.max(chance) && !(self.counts && off > 0.0);
            let problem = if miscovers {
                let word = if off < 0.0 { "narrow" } else { "wide" };
                format!(
                    "its 90 % intervals hold {} of the test rows, so they are too {word}",
                    percent(held)
                )
            } else if pit.distance > FAR_FROM_UNIFORM && pit.p_value < BY_CHANCE {
                // In the upper half of what was predicted.
                let above = pit.bins[pit.bins.len() / 2..].iter().sum::<f64>() / pit.rows as f64;
                if (above - 0.5).abs() > pit.distance / 2.0 {
                    format!(
                        "the truth lies above the middle of what it predicts in {} of the test rows",
                        percent(above)
                    )
                } else {
                    format!(
                        "the truth lies where it should not (PIT up to {:.2} from uniform)",
                        pit.distance
                    )
                }
            } else {
                return None;
            };
            let known = self.config.model.noise == NoiseModel::Known;
            let advice = if known {
                "let it learn the noise (`model.noise = \"learned\"`), or train longer"
            } else {
                "try another `model.likelihood`, such as `student-t`, or train longer"
            };
            return Some(Doubt::new(Belief::Partly, problem, advice));
        }
        let Calibrated { ece, by_chance } = self.calibrated?;
        (ece > FAR_FROM_CALIBRATED.max(2.0 * by_chance)).then(|| {
            let problem = format!(
                "its probabilities are off by {ece:.3} on average (chance leaves {by_chance:.3})"
            );
            let advice = "average more samples, or train longer";
            Doubt::new(Belief::Partly, problem, advice)
        })
    }

    fn worse_than_last(&self) -> Option<Doubt> {
        let [posterior, last] = self.qualities;
        let told = self.convergence.worse_than_last(posterior, last, &self.config.cycles())?;
        // What to do follows the cause, after the last semicolon or comma.
        let (problem, advice) = match told.rsplit_once("; ").or_else(|| told.rsplit_once(", so ")) {
            Some((problem, advice)) => (problem.to_owned(), advice.to_owned()),
            None => (told, "leave out more of the beginning (`posterior.burn_in`)".to_owned()),
        };
        Some(Doubt::new(Belief::Partly, problem, advice))
    }

    fn few_draws(&self) -> Option<Doubt> {
        let found = self.convergence;
        let agreement = found.predictions.filter(|_| self.behaviour.adds_noise())?;
        let problem = match agreement.bulk_ess {
            Some(draws) if draws >= FEWEST_DRAWS => return None,
            Some(draws) => format!(
                "its samples are worth {draws:.0} independent draws (at least {FEWEST_DRAWS} are wanted), so the ends of intervals are rough"
            ),
            None => format!(
                "{} are too few to say how many independent draws they are worth",
                found.sampled()
            ),
        };
        Some(Doubt::new(Belief::Partly, problem, self.longer()))
    }

    /// The share of test rows that the intervals of [`LEVEL`] hold.
    fn held(&self) -> Option<f64> {
        self.pit?.coverage.iter().find(|c| c.level == LEVEL).map(|c| c.share)
    }

    /// Why a run without a doubt is believed.
    fn in_favour(&self) -> String {
        let found = self.convergence;
        let who = match found.chains {
            1 => "the two halves of its chain agree".to_owned(),
            several => format!("its {several} chains agree"),
        };
        let agreement = found.predictions.map_or_else(String::new, |p| {
            let draws =
                p.bulk_ess.map_or_else(String::new, |n| format!(", {n:.0} independent draws"));
            format!(" (R-hat {:.2} of predictions{draws})", p.r_hat)
        });
        let calibrated = match (self.held(), self.calibrated) {
            (Some(held), _) => {
                format!(", and its 90 % intervals hold {} of the test rows", percent(held))
            }
            (None, Some(found)) => format!(
                ", and its probabilities are off by {:.3} on average (chance leaves {:.3})",
                found.ece, found.by_chance
            ),
            (None, None) => String::new(),
        };
        format!("{who}{agreement}{calibrated}")
    }
}

/// Whether a chain is at its end. Not every epoch leaves a record: a run in stages that ended after
/// one of them may have its last sample after its last record.
pub fn has_ended(config: &Config, result: &ChainResult) -> bool {
    let recorded = result.records.last().map_or(0, |record| record.epoch + 1);
    let sampled = result.snapshots.last().map_or(0, |sample| sample.epoch + 1);
    config.is_end(recorded) || config.stages().is_some() && config.is_end(sampled)
}

impl Convergence {
    /// The samples that are compared, in words.
    fn sampled(&self) -> String {
        match (self.samples, self.chains) {
            (1, 1) => "1 sample".to_owned(),
            (samples, 1) => format!("{samples} samples"),
            (samples, chains) => format!("{chains} x {samples} samples"),
        }
    }
}

/// A number with four significant digits.
fn shown(value: f64) -> String {
    let before = value.abs().max(1e-9).log10().floor() as i32;
    format!("{value:.*}", (3 - before).clamp(0, 9) as usize)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::convergence::Agreement;
    use crate::evaluate::{Measured, PlainScores, Temperature};
    use thinfer_core::metrics::pit;

    /// Everything that a verdict looks at, of a good run of four chains.
    struct Case {
        config: Config,
        results: Vec<ChainResult>,
        blown_up: Vec<u32>,
        convergence: Convergence,
        behaviour: Behaviour,
        members: usize,
        no_better_than: Option<&'static str>,
        beside: Option<Beside>,
        nearest_mean: Option<(f64, f64)>,
        prunes_nothing: bool,
        pit: Option<Pit>,
        calibrated: Option<Calibrated>,
    }

    fn uniform(rows: usize) -> Vec<f64> {
        (0..rows).map(|at| (at as f64 + 0.5) / rows as f64).collect()
    }

    fn of(values: Vec<f64>) -> Option<Pit> {
        pit(&values.into_iter().map(|u| (u, u)).collect::<Vec<_>>())
    }

    impl Case {
        fn good() -> Self {
            let settings = ["train.epochs=20", "chains=2", "schedule.step_size.cycles=2"];
            let settings = [&settings[..], &["prune.warm_up_epochs=4"]].concat();
            let settings: Vec<String> = settings.into_iter().map(str::to_owned).collect();
            let agreement =
                Some(Agreement { r_hat: 1.02, bulk_ess: Some(412.4), tail_ess: Some(300.0) });
            Self {
                config: Config::parse("", &settings).unwrap(),
                results: crate::images::imagined::imagined().results,
                blown_up: Vec::new(),
                convergence: Convergence {
                    chains: 4,
                    samples: 150,
                    predictions: agreement,
                    log_likelihood: agreement,
                    log_sigma: None,
                    traces: Vec::new(),
                },
                behaviour: Behaviour {
                    effective_temperature_times_n: Some(1.0),
                    temperature_times_n: 1.0,
                    temperature: None,
                    measured: Some(Measured { value: 0.9, error: 0.1 }),
                    tau_mean: None,
                    tau_sd: None,
                    disagreement: None,
                    clipped_steps: 0,
                    largest_loss: 1.0,
                    final_loss: 1.0,
                },
                members: 600,
                no_better_than: None,
                beside: None,
                nearest_mean: None,
                prunes_nothing: false,
                pit: of(uniform(200)),
                calibrated: None,
            }
        }

        fn verdict(&self) -> Verdict {
            Verdict::of(&Evidence {
                config: &self.config,
                results: &self.results,
                blown_up: &self.blown_up,
                convergence: &self.convergence,
                behaviour: &self.behaviour,
                members: self.members,
                no_better_than: self.no_better_than,
                beside: self.beside.as_ref(),
                nearest_mean: self.nearest_mean,
                prunes_nothing: self.prunes_nothing,
                pit: self.pit.as_ref(),
                counts: false,
                calibrated: self.calibrated,
                qualities: [Quality { nll: Some(1.0), ece: None }; 2],
            })
        }

        /// The verdict on the case with a change.
        fn told(change: impl FnOnce(&mut Self)) -> (Belief, String) {
            let mut case = Self::good();
            change(&mut case);
            let Verdict { believe, sentence, more, .. } = case.verdict();
            assert!(more.is_empty(), "{sentence} {more:?}");
            assert_eq!(sentence.matches(". ").count(), 0, "one sentence: {sentence}");
            (believe, sentence)
        }
    }

    #[test]
    fn a_good_run_is_believed_and_says_why() {
        let (believe, sentence) = Case::told(|_| {});
        assert_eq!(believe, Belief::Yes);
        assert_eq!(
            sentence,
            "Believe this run: its 4 chains agree (R-hat 1.02 of predictions, 412 independent \
             draws), and its 90 % intervals hold 90.0 % of the test rows."
        );
        let classes = Case::told(|case| {
            case.pit = None;
            case.calibrated = Some(Calibrated { ece: 0.07, by_chance: 0.04 });
        });
        assert!(classes.1.ends_with("are off by 0.070 on average (chance leaves 0.040)."));
        assert_eq!(classes.0, Belief::Yes);
    }

    #[test]
    fn every_doubt_has_its_sentence_and_its_weight() {
        let no = |change: fn(&mut Case), part: &str| {
            let (believe, sentence) = Case::told(change);
            assert_eq!(believe, Belief::No, "{sentence}");
            assert!(sentence.starts_with("Do not believe this run: "), "{sentence}");
            assert!(sentence.contains(part), "{sentence}");
        };
        no(|case| case.blown_up = vec![1], "chain 1 of 2 blew up; train again with a smaller");
        no(|case| case.no_better_than = Some("a constant"), "it is no better than a constant");
        no(
            |case| case.convergence.predictions.iter_mut().for_each(|p| p.r_hat = 1.62),
            "its 4 chains disagree (R-hat 1.62 of predictions, at most 1.1 is wanted); raise",
        );
        let unknown = |change: fn(&mut Case), part: &str| {
            let (believe, sentence) = Case::told(change);
            assert_eq!(believe, Belief::Unknown, "{sentence}");
            assert!(sentence.contains(part), "{sentence}");
        };
        unknown(
            |case| (case.convergence.predictions, case.convergence.samples) = (None, 3),
            "4 x 3 samples are too few to compare, as R-hat needs 4 of each chain; raise",
        );
        unknown(|case| case.config.train.epochs = 40, "it is not finished; go on with");
        unknown(|case| case.config.chains = 3, "it is not finished");
        let partly = |change: fn(&mut Case), part: &str| {
            let (believe, sentence) = Case::told(change);
            assert_eq!(believe, Belief::Partly, "{sentence}");
            assert!(sentence.contains(", but not how sure they are: "), "{sentence}");
            assert!(sentence.contains(part), "{sentence}");
        };
        partly(|case| case.members = 1, "its posterior is a single sample; take more");
        partly(
            |case| case.behaviour.effective_temperature_times_n = None,
            "`em-mcmc` does not sample the posterior",
        );
        partly(
            |case| case.behaviour.measured = Some(Measured { value: 2.1, error: 0.2 }),
            "spread too widely, at 2.10 ± 0.20 times the temperature",
        );
        partly(
            |case| case.convergence.predictions.iter_mut().for_each(|p| p.bulk_ess = Some(37.2)),
            "worth 37 independent draws (at least 100 are wanted)",
        );
        partly(
            |case| {
                (case.convergence.samples, case.convergence.chains) = (12, 1);
                case.convergence.predictions.iter_mut().for_each(|p| p.bulk_ess = None);
            },
            "12 samples are too few to say",
        );
        partly(
            |case| case.pit = of(uniform(200).iter().map(|u| 0.2 + 0.6 * u).collect()),
            "its 90 % intervals hold 100.0 % of the test rows, so they are too wide; let it learn",
        );
        // As many at the ends as there should be, and the others too low.
        let pulled = |u: &f64| match *u {
            u if !(0.05..=0.95).contains(&u) => u,
            u => 0.05 + 0.9 * ((u - 0.05) / 0.9).powi(2),
        };
        let low = of(uniform(200).iter().map(pulled).collect());
        let (believe, sentence) = Case::told(|case| case.pit = low);
        assert_eq!(believe, Belief::Partly);
        assert!(
            sentence.contains("middle of what it predicts in 31.5 % of the test rows; let"),
            "{sentence}"
        );
        partly(
            |case| {
                case.pit = None;
                case.calibrated = Some(Calibrated { ece: 0.12, by_chance: 0.03 });
            },
            "its probabilities are off by 0.120 on average",
        );
    }

    #[test]
    fn what_was_hardly_worth_its_time_is_said_first() {
        let plain = |rmse| PlainScores { rmse: Some(rmse), ..PlainScores::default() };
        let beside = |ours: f64, linear: f64, loses, hardly| Beside {
            posterior: plain(ours),
            constant: plain(10.0),
            linear: Some(plain(linear)),
            loses_to_linear: loses,
            hardly_better_than_constant: hardly,
        };
        let cautions = |change: &dyn Fn(&mut Case)| {
            let mut case = Case::good();
            change(&mut case);
            let verdict = case.verdict();
            assert_eq!(verdict.cautions.len(), 1, "{:?}", verdict.cautions);
            (verdict.believe, verdict.cautions[0].clone(), verdict.sentence)
        };
        let told = cautions(&|case| case.beside = Some(beside(5.0, 4.0, true, false)));
        assert_eq!(told.0, Belief::No);
        assert!(told.1.starts_with(
            "on the test rows a linear model on all columns is better (RMSE 5.000 against 4.000); train longer"
        ));
        let told = cautions(&|case| case.beside = Some(beside(9.95, 9.9, false, true)));
        assert!(told.1.contains("hardly better than a constant (RMSE 9.950 against 10.00)"));
        let told = cautions(&|case| case.nearest_mean = Some((0.5, 0.45)));
        assert!(told.1.contains("right as often (50.0 % against 45.0 %)"), "{}", told.1);
        let told = cautions(&|case| case.prunes_nothing = true);
        assert_eq!(told.0, Belief::Yes);
        assert!(told.2.starts_with("Believe this run, though it did not do what was asked for: nothing was pruned though the method prunes; say how much"));
        let mut good = Case { beside: Some(beside(5.0, 6.0, false, false)), ..Case::good() };
        assert!(good.verdict().cautions.is_empty());
        // Chains that disagree and predict well all the same are not to be thrown away.
        good.convergence.predictions.iter_mut().for_each(|p| p.r_hat = 1.62);
        assert_eq!(good.verdict().believe, Belief::Partly);
    }

    /// A large distance on few rows is chance, and so is a wide estimate of the temperature.
    #[test]
    fn what_chance_explains_is_no_doubt() {
        let few = |case: &mut Case| case.pit = of(uniform(8).iter().map(|u| u * u).collect());
        assert_eq!(Case::told(few).0, Belief::Yes);
        let wide = |case: &mut Case| {
            case.behaviour.measured = Some(Measured { value: 2.1, error: 0.8 });
        };
        assert_eq!(Case::told(wide).0, Belief::Yes);
    }

    #[test]
    fn the_gravest_doubt_is_told_first_and_the_others_after_it() {
        let mut case = Case::good();
        case.members = 1;
        case.convergence.predictions.iter_mut().for_each(|p| p.r_hat = 1.5);
        case.behaviour.temperature = Some(Temperature {
            asked_for: 1.0,
            injected: 1.0,
            minibatch: 0.0,
            total: 1.0,
            clipped_sampling_share: 0.25,
            valid: false,
            rows_a_step: None,
        });
        let found = case.verdict();
        assert_eq!(found.believe, Belief::No);
        assert!(found.sentence.contains("R-hat 1.50"), "{}", found.sentence);
        assert_eq!(found.more.len(), 2);
        assert!(found.more[0].starts_with("its posterior is a single sample; "));
        assert!(found.more[1].starts_with("25.0 % of the sampling steps were clipped"));
    }

    #[test]
    fn a_run_in_stages_may_end_after_any_of_them() {
        let mut case = Case::good();
        case.config.train.epochs = 42;
        case.config.train.samples_per_cycle = 10;
        case.config.train.stages = 3;
        let ends = case.config.stages().unwrap().ends();
        assert_eq!(ends, [12, 22, 42]);
        assert!(case.config.is_end(22) && case.config.is_end(42) && !case.config.is_end(20));
        // Records are further apart than samples, so the last one may be of an epoch before the end.
        let mut result = case.results[0].clone();
        result.snapshots.clear();
        assert!(!has_ended(&case.config, &result));
        result.snapshots.push(thinfer_core::posterior::Snapshot {
            chain: 0,
            epoch: 21,
            weights: Vec::new(),
            keep: Vec::new(),
            stats: Vec::new(),
            inclusion: Vec::new(),
        });
        assert!(has_ended(&case.config, &result));
        assert_eq!(case.verdict().believe, Belief::Unknown);
    }
}
