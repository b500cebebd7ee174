//! Samples of a density that is a function in Python.

use numpy::{PyArray1, PyArray3, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use thinfer::density::{Sampling, sample as sample_density, walk};
use thinfer::engine::noise::{Key, Stream};
use thinfer::methods::mclmc::{Mclmc, MclmcMethod};
use thinfer::methods::nuts::{Nuts, NutsMethod};
use thinfer::methods::sghmc::{NoiseRule, RhoRule, Sghmc, SghmcMethod};

use crate::errors::caught;

/// A function of Python: a point to the logarithm of a density and its gradient.
struct Function<'py> {
    call: Bound<'py, PyAny>,
    /// What it raised first. Nothing is called from then on.
    raised: Option<PyErr>,
}

impl Function<'_> {
    /// The logarithm at `x`; the gradient there goes to `gradient`. Not a number once it raised.
    fn at(&mut self, x: Vec<f64>, gradient: &mut [f64]) -> f64 {
        if self.raised.is_none() {
            match self.called(x, gradient) {
                Ok(value) => return value,
                Err(error) => self.raised = Some(error),
            }
        }
        gradient.fill(f64::NAN);
        f64::NAN
    }

    fn called(&self, x: Vec<f64>, gradient: &mut [f64]) -> PyResult<f64> {
        let py = self.call.py();
        py.check_signals()?;
        let given = self.call.call1((PyArray1::from_vec(py, x),))?;
        let (value, found) = given.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>().map_err(|_| {
            PyTypeError::new_err(
                "the function must return two things, the logarithm of the density and its gradient",
            )
        })?;
        let value: f64 = value.extract().map_err(|_| {
            PyTypeError::new_err("the logarithm of the density must be a number; return a float")
        })?;
        let found: PyReadonlyArray1<'_, f64> = found.extract().map_err(|_| {
            PyTypeError::new_err("the gradient must be an array of float64 with one axis")
        })?;
        let found = found.as_array();
        if found.len() != gradient.len() {
            return Err(PyValueError::new_err(format!(
                "the gradient has {} numbers, but the point has {}; return one for each",
                found.len(),
                gradient.len()
            )));
        }
        gradient.iter_mut().zip(found).for_each(|(to, from)| *to = *from);
        Ok(value)
    }
}

/// How to sample, as Python says it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    method: String,
    draws: usize,
    warm_up: usize,
    chains: u32,
    seed: u64,
    thin: u64,
    step_size: f64,
}

/// Draws of all chains, (chains, draws, numbers).
#[pyfunction]
pub(crate) fn sample<'py>(
    function: Bound<'py, PyAny>,
    start: PyReadonlyArray1<'_, f64>,
    settings: Settings,
) -> PyResult<Bound<'py, PyArray3<f64>>> {
    let py = function.py();
    let start = start.as_array().to_vec();
    let mut function = Function { call: function, raised: None };
    let mut all = Vec::with_capacity(settings.chains as usize * settings.draws * start.len());
    for chain in 0..settings.chains {
        let key = Key::new(settings.seed, chain, Stream::Sampler);
        let found = caught(|| one_chain(&mut function, &start, &settings, key));
        // What the function raised is the reason for whatever came of it.
        if let Some(error) = function.raised {
            return Err(error);
        }
        all.extend(found?.into_iter().flatten());
    }
    let shape = [settings.chains as usize, settings.draws, start.len()];
    PyArray1::from_vec(py, all).reshape(shape)
}

fn one_chain(
    function: &mut Function<'_>,
    start: &[f64],
    settings: &Settings,
    key: Key,
) -> thinfer::Result<Vec<Vec<f64>>> {
    let Settings { warm_up, draws, .. } = *settings;
    let density = |x: &[f64], gradient: &mut [f64]| function.at(x.to_vec(), gradient);
    match settings.method.as_str() {
        "nuts" => {
            let config = Nuts { warm_up_epochs: warm_up, ..Nuts::default() };
            walk(&NutsMethod { config, key }, start, warm_up, draws, density)
        }
        "mclmc" => {
            let moves = usize::try_from(settings.thin).unwrap_or(usize::MAX);
            // A density has no rows that could be held out, so chains begin where they are told.
            let config =
                Mclmc { warm_up_epochs: warm_up, start_epochs: 0, moves, ..Mclmc::default() };
            walk(&MclmcMethod { config, key }, start, warm_up, draws, density)
        }
        "sghmc" => sghmc(function, start, settings, key),
        other => {
            let problem = format!("is \"{other}\", but must be \"nuts\", \"mclmc\" or \"sghmc\"");
            Err(thinfer::Error::config("method", problem))
        }
    }
}

/// In single precision, with the step size that the user gives.
fn sghmc(
    function: &mut Function<'_>,
    start: &[f64],
    settings: &Settings,
    key: Key,
) -> thinfer::Result<Vec<Vec<f64>>> {
    let config = Sghmc {
        beta1: 0.9,
        beta2: 1.0,
        weight_decay: 0.0,
        train_rows: 1,
        noise: NoiseRule::Exact,
        rho: RhoRule::Exact,
        initial_momentum: 0.0,
        clip: None,
    };
    let method = SghmcMethod { config, key, batch_noise: None };
    let start: Vec<f32> = start.iter().map(|x| *x as f32).collect();
    let sampling = Sampling {
        step_size: settings.step_size,
        burn_in: settings.warm_up as u64,
        samples: settings.draws,
        thin: settings.thin,
        seed: settings.seed,
    };
    let mut exact = vec![0.0; start.len()];
    let found = sample_density(&method, &start, &sampling, |x, gradient| {
        let value = function.at(x.iter().map(|x| f64::from(*x)).collect(), &mut exact);
        gradient.iter_mut().zip(&exact).for_each(|(to, from)| *to = *from as f32);
        value
    })?;
    Ok(found.into_iter().map(|draw| draw.into_iter().map(f64::from).collect()).collect())
}
