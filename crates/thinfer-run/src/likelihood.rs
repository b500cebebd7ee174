//! Which likelihood a number or a count has, chosen by rows that are held out.

use std::fmt;
use std::sync::atomic::AtomicBool;

use thinfer_core::metrics::Spread;
use thinfer_core::posterior::{Posterior, Predictive};
use thinfer_core::train::{Setting, Silent, run_chains};
use thinfer_data::{Bundle, Data, Error, Result, Task};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Dataset, Loss, Network};

use crate::config::{Config, Likelihood, NoiseModel};
use crate::experiment::{Problem, chain_specs};

/// With fewer training rows those held out say too little, and the first candidate is taken.
const FEWEST_ROWS: usize = 100;
/// Rows that are looked at, at most.
const MOST_ROWS: usize = 2000;
/// Parts of the rows: each is held out once.
const FOLDS: usize = 5;
/// Chains that predict a part, from starts of their own.
const CHAINS: usize = 2;
/// Epochs of such a chain, and those of them that give a sample.
const EPOCHS: usize = 200;
const SAMPLES: usize = 40;
/// The share of the budget in time that all of this may take, about.
const BUDGET_SHARE: f64 = 0.15;
/// Seconds of the budget, where none are given.
const BUDGET: f64 = 120.0;

/// A likelihood with its noise.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    likelihood: Likelihood,
    noise: NoiseModel,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_row = if self.noise == NoiseModel::ByRow { " with noise by row" } else { "" };
        write!(f, "{}{by_row}", self.likelihood.name())
    }
}

/// A candidate and what rows held out say of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tried {
    candidate: Candidate,
    /// Their mean loss.
    loss: f64,
    /// How much larger it is than the smallest, and the standard error of that difference.
    behind: (f64, f64),
}

/// The likelihood that was chosen, and those that it was chosen from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    chosen: Candidate,
    tried: Vec<Tried>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "likelihood: {}", self.chosen)?;
        if self.tried.is_empty() {
            return write!(f, "; too few rows to compare others");
        }
        write!(f, "; mean loss of rows held out: ")?;
        for (at, Tried { candidate, loss, behind: (behind, error) }) in
            self.tried.iter().enumerate()
        {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{candidate} {loss:.3}")?;
            if *behind > 0.0 {
                write!(f, " (+{behind:.3} ± {error:.3})")?;
            }
        }
        Ok(())
    }
}

/// What can be chosen from, the plainer ones first.
fn candidates(config: &Config, counts: bool) -> Vec<Candidate> {
    let noise = config.model.noise;
    let all = |likelihoods: [Likelihood; 2], noise| {
        likelihoods.map(|likelihood| Candidate { likelihood, noise })
    };
    if counts {
        return all([Likelihood::NegativeBinomial, Likelihood::Poisson], noise).to_vec();
    }
    let numbers = [Likelihood::Normal, Likelihood::StudentT];
    let mut candidates = all(numbers, noise).to_vec();
    if noise == NoiseModel::Learned {
        candidates.extend(all(numbers, NoiseModel::ByRow));
    }
    candidates
}

/// The configuration with the likelihood that rows held out speak for, where it leaves the choice
/// to them. It follows from configuration and data alone, so a resumed run makes the same.
///
/// Every candidate predicts each fifth of the rows from the others, by the average of two short
/// chains: what is compared is the predictive density, as the run will have it. The plainest is
/// taken that is behind the best by no more than the standard error of the difference.
pub(crate) fn choose(
    config: &Config,
    data: &Data,
    stop: &AtomicBool,
) -> Result<(Config, Option<Choice>)> {
    let mut resolved = config.clone();
    let Some(table) = asks(config, data) else { return Ok((resolved, None)) };
    let candidates = candidates(config, table.schema.count_mean().is_some());
    let mut choice = Choice { chosen: candidates[0], tried: Vec::new() };
    if table.train_rows >= FEWEST_ROWS {
        let folds = Fold::all(config.seed, &table.train);
        let short = short(config, folds.len() * candidates.len())?;
        let losses = candidates.iter().map(|candidate| {
            let config = with(&short, *candidate);
            let of_fold = |fold: &Fold| fold.losses(&config, table, stop);
            Ok(folds.iter().map(of_fold).collect::<Result<Vec<_>>>()?.concat())
        });
        let losses = losses.collect::<Result<Vec<Vec<f64>>>>()?;
        choice.tried = compared(&candidates, &losses);
        let plainest = choice.tried.iter().find(|tried| tried.behind.0 <= tried.behind.1);
        choice.chosen = plainest.map_or(candidates[0], |tried| tried.candidate);
    }
    resolved = with(&resolved, choice.chosen);
    Ok((resolved, Some(choice)))
}

/// The table, where its likelihood is left to rows that are held out.
pub(crate) fn asks<'a>(config: &Config, data: &'a Data) -> Option<&'a Bundle> {
    let table = data.table().filter(|table| table.task == Task::Regression);
    table.filter(|_| config.model.likelihood == Some(Likelihood::ByValidation))
}

/// The configuration with a candidate.
fn with(config: &Config, Candidate { likelihood, noise }: Candidate) -> Config {
    let mut config = config.clone();
    (config.model.likelihood, config.model.noise) = (Some(likelihood), noise);
    config
}

/// The configuration of chains that are short enough for `runs` of them.
fn short(config: &Config, runs: usize) -> Result<Config> {
    if config.method.kind.name() != "mclmc" {
        let problem = "is \"by-validation\", which compares short chains of \"mclmc\"; name one";
        return Err(Error::config("model.likelihood", problem));
    }
    let mut short = config.clone();
    short.chains = CHAINS;
    (short.train.epochs, short.train.samples_per_cycle, short.train.stages) = (EPOCHS, SAMPLES, 1);
    let budget = config.method.own.number("budget_seconds").unwrap_or(BUDGET);
    short.method.own.set_number("budget_seconds", BUDGET_SHARE * budget / runs.max(1) as f64);
    Ok(short)
}

/// Mean losses, and how far each is behind the smallest; those that are no numbers are left out.
fn compared(candidates: &[Candidate], losses: &[Vec<f64>]) -> Vec<Tried> {
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len().max(1) as f64;
    let usable = candidates.iter().zip(losses).filter(|(_, losses)| mean(losses).is_finite());
    let usable: Vec<_> = usable.collect();
    let best = usable.iter().min_by(|(_, a), (_, b)| mean(a).total_cmp(&mean(b)));
    let Some((_, best)) = best else { return Vec::new() };
    let tried = |(candidate, losses): &(&Candidate, &Vec<f64>)| {
        let apart: Vec<f64> = losses.iter().zip(*best).map(|(loss, best)| loss - best).collect();
        let spread = Spread::of(&apart);
        let error = spread.sd / (spread.n.max(1) as f64).sqrt();
        Tried { candidate: **candidate, loss: mean(losses), behind: (spread.mean, error) }
    };
    usable.iter().map(tried).collect()
}

/// Rows that are held out, and the others.
struct Fold {
    fitted: Dataset,
    held_out: Dataset,
}

impl Fold {
    fn all(seed: u64, data: &Dataset) -> Vec<Self> {
        let mut order = Key::new(seed, 0, Stream::Split).permutation(1, data.rows());
        order.truncate(MOST_ROWS);
        let part = |fold: usize| fold * order.len() / FOLDS;
        let fold = |at: usize| {
            let (first, end) = (part(at), part(at + 1));
            let rest = [&order[..first], &order[end..]].concat();
            Self { fitted: data.take_rows(&rest), held_out: data.take_rows(&order[first..end]) }
        };
        (0..FOLDS).map(fold).collect()
    }

    /// The negative log-likelihood of each row that is held out.
    fn losses(&self, config: &Config, table: &Bundle, stop: &AtomicBool) -> Result<Vec<f64>> {
        let problem = Problem { train_rows: self.fitted.rows(), ..table.into() };
        let specs = chain_specs(config, problem)?;
        let Some(network) = specs.first().map(|spec| spec.network.clone()) else {
            return Ok(Vec::new());
        };
        let results = run_chains(specs, &self.fitted, &Setting::in_memory(stop, &Silent, 0))?;
        let members = results.into_iter().flat_map(|result| result.snapshots).collect();
        match (Posterior { network, members }).predict(&self.held_out)? {
            Predictive::Regression { noise, means, sigmas } => {
                Ok(noise.row_nlls(&means, &sigmas, self.held_out.targets()))
            }
            Predictive::Classes { .. } => Ok(Vec::new()),
        }
    }
}

/// The configuration with the likelihood of a network that was trained under it.
pub(crate) fn as_trained(config: &Config, network: &Network) -> Config {
    let mut trained = config.clone();
    if config.model.likelihood == Some(Likelihood::ByValidation) {
        trained.model.likelihood = match network.loss() {
            Loss::Gaussian { .. } => Some(Likelihood::Normal),
            Loss::StudentT { .. } => Some(Likelihood::StudentT),
            Loss::Poisson { .. } => Some(Likelihood::Poisson),
            Loss::NegativeBinomial { .. } => Some(Likelihood::NegativeBinomial),
            Loss::Bernoulli | Loss::CrossEntropy { .. } => config.model.likelihood,
        };
        if network.loss().is_by_row() {
            trained.model.noise = NoiseModel::ByRow;
        }
    }
    trained
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    fn chosen(seed: u64, task: &str, target: impl Fn(f64, f64, usize) -> f64) -> Choice {
        of_rows(240, seed, task, target)
    }

    fn of_rows(
        rows: usize,
        seed: u64,
        task: &str,
        target: impl Fn(f64, f64, usize) -> f64,
    ) -> Choice {
        let key = Key::new(seed, 0, Stream::Initial);
        let mut noise = vec![0.0; 2 * rows];
        key.normals(0, 0, &mut noise);
        let mut text = String::from("x,y\n");
        for row in 0..rows {
            let (x, e) = (f64::from(noise[2 * row]), f64::from(noise[2 * row + 1]));
            writeln!(text, "{x},{}", target(x, e, row)).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        std::fs::write(&path, text).unwrap();
        let settings = [
            "data.kind=table".to_owned(),
            format!("data.path={}", path.display()),
            "data.target=y".into(),
            format!("data.task={task}"),
            "model.hidden=[5]".into(),
            "method.moves=10".into(),
        ];
        let config = Config::parse("", &settings).unwrap();
        assert_eq!(config.model.likelihood, Some(Likelihood::ByValidation), "it is the default");
        let data = Data::load(&config.data, config.seed).unwrap();
        let (resolved, choice) = choose(&config, &data, &AtomicBool::new(false)).unwrap();
        let choice = choice.unwrap();
        let found = (resolved.model.likelihood, resolved.model.noise);
        assert_eq!(found, (Some(choice.chosen.likelihood), choice.chosen.noise));
        choice
    }

    fn of(likelihood: Likelihood, noise: NoiseModel) -> Candidate {
        Candidate { likelihood, noise }
    }

    /// Clean noise is normal, outliers ask for Student's t, noise that grows for noise by row, and
    /// counts that vary more than a Poisson's for the negative binomial.
    #[test]
    fn rows_held_out_choose_the_likelihood() {
        for seed in [5, 6] {
            let clean = chosen(seed, "regression", |x, e, _| x.sin() + 0.3 * e);
            let normal = of(Likelihood::Normal, NoiseModel::Learned);
            assert_eq!(clean.chosen, normal, "{clean}");
        }
        let outlier = |row: usize| if row % 12 == 5 { 12.0 } else { 0.3 };
        let heavy = chosen(5, "regression", |x, e, row| x.sin() + outlier(row) * e);
        assert_eq!(heavy.chosen.likelihood, Likelihood::StudentT, "{heavy}");
        let grows = chosen(5, "regression", |x, e, _| x.sin() + 0.2 * (0.8 * x).exp() * e);
        assert_eq!(grows.chosen, of(Likelihood::Normal, NoiseModel::ByRow), "{grows}");
        let wide = chosen(5, "counts", |x, e, _| (1.0 + 0.5 * x + 1.2 * e).exp().round());
        assert_eq!(wide.chosen.likelihood, Likelihood::NegativeBinomial, "{wide}");
        let few = of_rows(60, 5, "regression", |x, e, row| x.sin() + outlier(row) * e);
        assert_eq!((few.chosen.likelihood, few.tried.len()), (Likelihood::Normal, 0), "{few}");
    }

    /// By hand: the second is behind by 0.1 ± 0.1, the third by 0.5 ± 0, the last is not a number.
    #[test]
    fn the_plainest_within_a_standard_error_of_the_best_is_taken() {
        let all = [NoiseModel::Learned, NoiseModel::ByRow]
            .map(|noise| [Likelihood::Normal, Likelihood::StudentT].map(|of_y| of(of_y, noise)))
            .concat();
        let losses =
            [vec![1.0, 1.0, 1.0], vec![1.2, 1.0, 1.1], vec![1.5; 3], vec![f64::NAN, 0.0, 0.0]];
        let tried = compared(&all, &losses);
        assert_eq!(tried.len(), 3);
        let (behind, error) = tried[1].behind;
        assert!((behind - 0.1).abs() < 1e-12 && (error - 0.1 / 3f64.sqrt()).abs() < 1e-12);
        assert_eq!((tried[0].behind, tried[2].behind), ((0.0, 0.0), (0.5, 0.0)));
        let choice = Choice { chosen: all[0], tried };
        let text = choice.to_string();
        assert!(
            text.contains("student-t 1.100 (+0.100 ± 0.058), normal with noise by row"),
            "{text}"
        );
    }
}
