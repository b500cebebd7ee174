//! Which likelihood a number or a count has, chosen by rows that are held out.

use std::fmt;

use thinfer_core::methods::mclmc;
use thinfer_core::train::{Chain, ChainSpec};
use thinfer_data::{Bundle, Data, Error, Result, Task, jobs};
use thinfer_engine::{Loss, Network};

use crate::config::{Config, Likelihood};
use crate::experiment::chain_specs;

/// With fewer training rows the tenth that is held out says too little, and the first is taken.
const FEWEST_ROWS: usize = 100;
/// Chains whose starts are compared: each holds out another tenth of the rows.
const STARTS: usize = 4;

/// A likelihood, and the mean loss of held-out rows under each that was tried.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    likelihood: Likelihood,
    losses: Vec<(Likelihood, f64)>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let losses = self.losses.iter().map(|(of, loss)| format!("{} {loss:.3}", of.name()));
        let losses = losses.collect::<Vec<_>>().join(", ");
        let name = self.likelihood.name();
        match self.losses.len() {
            0 => write!(f, "likelihood: {name}; too few rows to compare others"),
            _ => write!(f, "likelihood: {name}; mean loss of rows held out: {losses}"),
        }
    }
}

/// The configuration with the likelihood that rows held out speak for, where it leaves the choice
/// to them. It follows from configuration and data alone, so a resumed run makes the same.
///
/// Each candidate is fitted as the starts of [`mclmc`] are: Adam on nine rows of ten until the tenth
/// gets worse. The smallest loss of these tenths counts, mean over starts.
pub(crate) fn choose(config: &Config, data: &Data) -> Result<(Config, Option<Choice>)> {
    let mut chosen = config.clone();
    let table = data.table().filter(|table| table.task == Task::Regression);
    let (Some(Likelihood::ByValidation), Some(table)) = (config.model.likelihood, table) else {
        return Ok((chosen, None));
    };
    let candidates = match table.schema.count_mean() {
        Some(_) => [Likelihood::NegativeBinomial, Likelihood::Poisson],
        None => [Likelihood::Normal, Likelihood::StudentT],
    };
    let mut choice = Choice { likelihood: candidates[0], losses: Vec::new() };
    if table.train_rows >= FEWEST_ROWS {
        for likelihood in candidates {
            chosen.model.likelihood = Some(likelihood);
            choice.losses.push((likelihood, held_out_loss(&chosen, table)?));
        }
        let finite = choice.losses.iter().filter(|(_, loss)| loss.is_finite());
        // The first of equals, which is the plainer one.
        let best = finite.min_by(|(_, a), (_, b)| a.total_cmp(b));
        choice.likelihood = best.map_or(candidates[0], |(likelihood, _)| *likelihood);
    }
    chosen.model.likelihood = Some(choice.likelihood);
    Ok((chosen, Some(choice)))
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
    }
    trained
}

/// The mean negative log-likelihood of held-out rows, up to what depends on the rows alone.
fn held_out_loss(config: &Config, data: &Bundle) -> Result<f64> {
    let mut several = config.clone();
    several.chains = STARTS;
    let specs = chain_specs(&several, data)?;
    let left_out = specs.first().map_or(0.0, |spec| spec.network.loss().left_out());
    let losses = jobs::run(specs, STARTS, |_, spec| start_loss(spec, data))?;
    Ok(losses.iter().sum::<f64>() / losses.len().max(1) as f64 + left_out)
}

fn start_loss(spec: ChainSpec, data: &Bundle) -> Result<f64> {
    let problem =
        "is \"by-validation\", which compares the optimised starts of \"mclmc\"; name one";
    let mut chain = Chain::start(spec)?;
    loop {
        chain.advance(&data.train)?;
        let start = mclmc::start(chain.arena().numbers());
        let Some(start) = start else {
            return Err(Error::config("model.likelihood", problem));
        };
        let begun = chain.step() >= chain.spec().clock.total_steps();
        if start.has_ended || start.moves || begun {
            return Ok(start.held_out_loss);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    fn chosen(rows: usize, task: &str, target: impl Fn(f64, f64, usize) -> f64) -> Choice {
        let key = thinfer_engine::noise::Key::new(5, 0, thinfer_engine::noise::Stream::Initial);
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
            "method.moves=20".into(),
        ];
        let config = Config::parse("", &settings).unwrap();
        assert_eq!(config.model.likelihood, Some(Likelihood::ByValidation), "it is the default");
        let data = Data::load(&config.data, config.seed).unwrap();
        let (resolved, choice) = choose(&config, &data).unwrap();
        let choice = choice.unwrap();
        assert_eq!(resolved.model.likelihood, Some(choice.likelihood));
        choice
    }

    /// Clean noise is normal, outliers ask for Student's t, and counts that vary more than a
    /// Poisson's for the negative binomial.
    #[test]
    fn rows_held_out_choose_the_likelihood() {
        let clean = chosen(400, "regression", |x, e, _| x.sin() + 0.3 * e);
        assert_eq!(clean.likelihood, Likelihood::Normal, "{clean}");
        let outlier = |row: usize| if row % 12 == 5 { 12.0 } else { 0.3 };
        let heavy = chosen(400, "regression", |x, e, row| x.sin() + outlier(row) * e);
        assert_eq!(heavy.likelihood, Likelihood::StudentT, "{heavy}");
        let wide = chosen(400, "counts", |x, e, _| (1.0 + 0.5 * x + 1.2 * e).exp().round());
        assert_eq!(wide.likelihood, Likelihood::NegativeBinomial, "{wide}");
        let few = chosen(60, "regression", |x, e, row| x.sin() + outlier(row) * e);
        assert_eq!((few.likelihood, few.losses.len()), (Likelihood::Normal, 0), "{few}");
    }
}
