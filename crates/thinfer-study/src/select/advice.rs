//! What to do where no variable was selected.

use super::scores::{Model, ModelScores};

/// The better of the linear models against the constant, and what follows; `better` is said where
/// the linear model on all variables is clearly better than the constant.
pub(super) fn of_nothing(models: &[ModelScores], better: Option<String>) -> Option<String> {
    let of = |model: Model| models.iter().find(|scores| scores.model == model);
    let constant = of(Model::Constant)?;
    let linear = [of(Model::Linear), of(Model::Lasso)].into_iter().flatten();
    let best = linear
        .filter(|scores| scores.loss().is_some_and(f64::is_finite))
        .min_by(|a, b| a.loss().unwrap_or(f64::MAX).total_cmp(&b.loss().unwrap_or(f64::MAX)))?;
    let (unit, of_constant) = match best.rmse {
        Some(_) => ("RMSE", "the mean"),
        None => ("log loss", "the shares of the classes"),
    };
    let (loss, rival) = (best.loss()?, constant.loss()?);
    if best.variables == 0 || loss >= rival {
        return Some(format!(
            "no linear model predicts the held-out rows better than {of_constant} either, so these columns may say nothing about the target; add rows, or columns that could matter"
        ));
    }
    let name = match best.model {
        Model::Lasso => "the lasso",
        _ => "the linear model",
    };
    let variables = match best.variables {
        1 => "1 variable".to_owned(),
        many => format!("{many} variables"),
    };
    let lead = format!(
        "{name} with {variables} has the {unit} {} on the held-out rows, {of_constant} {}",
        number(loss),
        number(rival)
    );
    Some(match better {
        Some(better) => format!("{lead}; {better}"),
        None => format!("{lead}, which chance can explain; add rows to know"),
    })
}

/// Four digits.
fn number(value: f64) -> String {
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    format!("{rounded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(model: Model, variables: usize, rmse: f64) -> ModelScores {
        ModelScores {
            model,
            variables,
            rmse: Some(rmse),
            r2: None,
            mae: None,
            accuracy: None,
            auc: None,
            log_loss: None,
        }
    }

    #[test]
    fn the_better_linear_model_is_named_where_it_beats_the_constant() {
        let told = |linear: f64, lasso: f64, better: Option<&str>| {
            let models = [
                scores(Model::Linear, 9, linear),
                scores(Model::Lasso, 2, lasso),
                scores(Model::Constant, 0, 4.0),
            ];
            of_nothing(&models, better.map(str::to_owned)).unwrap()
        };
        let lasso = told(3.9, 3.81234, None);
        assert!(lasso.starts_with("the lasso with 2 variables has the RMSE 3.812"), "{lasso}");
        assert!(lasso.ends_with("chance can explain; add rows to know"), "{lasso}");
        let ridge = told(2.0, 3.0, Some("add rows"));
        assert!(ridge.starts_with("the linear model with 9 variables"), "{ridge}");
        assert!(ridge.ends_with("the mean 4; add rows"), "{ridge}");
        assert!(told(4.1, 4.2, None).starts_with("no linear model predicts"));
    }
}
