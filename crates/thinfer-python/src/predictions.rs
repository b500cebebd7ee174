//! Predictions as arrays.

use numpy::{PyArray1, PyArray3, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use thinfer::classify::classify;
use thinfer::data::table::{OutColumn, Table, Target};
use thinfer::data::{ImageSet, Images};
use thinfer::device::{Device, OnCuda};
use thinfer::engine::{Dataset, Shape};
use thinfer::posterior::{Posterior, Predictive};
use thinfer::run::RunInfo;
use thinfer::{Error, Result};

/// Named columns.
pub(crate) struct Columns<'a>(pub(crate) &'a [(String, OutColumn)]);

impl Columns<'_> {
    /// Arrays of numbers, and lists of text, by name. Rows need no numbers in Python.
    pub(crate) fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (name, column) in self.0.iter().filter(|(name, _)| name != "row") {
            match column {
                OutColumn::Number(values) => {
                    all.set_item(name, PyArray1::from_slice(py, values))?;
                }
                OutColumn::Text(values) => all.set_item(name, values)?,
            }
        }
        Ok(all)
    }
}

/// What the samples of a posterior say of some rows.
#[pyclass(frozen, module = "thinfer._thinfer")]
pub(crate) struct Predicted {
    predictive: Predictive,
    /// From the units of the network to the user's: centre and factor.
    units: (f64, f64),
    rows: usize,
}

/// Predicts all rows of a table, which must be complete and have every column.
pub(crate) fn of_table(info: &RunInfo, posterior: &Posterior, table: &Table) -> Result<Predicted> {
    let schema = &info.table()?.schema;
    let rows: Vec<u32> = (0..table.rows() as u32).collect();
    let inputs = schema.encoding.encode(table, &rows)?;
    let data = Dataset::new(schema.encoding.width(), 1, inputs, Vec::new())?;
    let predictive = posterior.predict(&data)?;
    let units = match schema.target {
        Target::Number { mean, sd } => (mean, sd),
        Target::Count { .. } | Target::Classes { .. } => (0.0, 1.0),
    };
    Ok(Predicted { predictive, units, rows: rows.len() })
}

/// Class probabilities of images (rows, height, width, channels), and how many there are.
pub(crate) fn of_images(
    info: &RunInfo,
    posterior: &Posterior,
    (rows, height, width, channels): (usize, usize, usize, usize),
    bytes: Vec<u8>,
    device: Device,
) -> Result<(usize, Vec<f64>)> {
    let inputs = info.images()?;
    let given = Shape { channels, height, width };
    if given != inputs.shape {
        let want = inputs.shape;
        return Err(Error::Data(format!(
            "images are {height}x{width} with {channels} channels, but the run was trained on {}x{} with {}; resize them",
            want.height, want.width, want.channels
        )));
    }
    let on = OnCuda::open(device, info.config.train.precision.into())?;
    let images = Images::Held(std::sync::Arc::new(ImageSet::new(given, bytes, vec![0; rows])?));
    let augment = inputs.augment()?;
    let members = classify(&posterior.network, &posterior.members, &images, &augment, on.as_ref())?;
    let classes = inputs.classes.len();
    Ok((rows, Predictive::Classes { classes, members }.mean()))
}

#[pymethods]
impl Predicted {
    /// What each sample says: means in the user's units, or probabilities, (samples, rows, 1 or
    /// classes).
    fn members<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<f64>>> {
        let (members, width) = match &self.predictive {
            Predictive::Regression { means, .. } => (means, 1),
            Predictive::Classes { classes, members } => (members, *classes),
        };
        let (centre, factor) = self.units;
        let all = members.iter().flatten().map(|value| centre + factor * value).collect();
        PyArray1::from_vec(py, all).reshape([members.len(), self.rows, width])
    }

    /// The mean over samples, row by row: in the user's units, or probabilities.
    fn mean<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        let (centre, factor) = self.units;
        let mean = self.predictive.mean().into_iter().map(|value| centre + factor * value);
        PyArray1::from_vec(py, mean.collect())
    }

    /// The standard deviation of the predictive distribution; nothing of classes.
    fn sd<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f64>>> {
        let Predictive::Regression { noise, means, sigmas } = &self.predictive else {
            return None;
        };
        let (average, members) = (self.predictive.mean(), means.len() as f64);
        // The variance of an equal-weight mixture: the mean of the variances, and that of the means.
        let sd = |(row, mean): (usize, &f64)| {
            let scales = sigmas.at_row(row);
            let within = means.iter().zip(scales.iter()).map(|(m, s)| noise.variance(m[row], *s));
            let between = means.iter().map(|m| (m[row] - mean).powi(2));
            self.units.1 * ((within.sum::<f64>() + between.sum::<f64>()) / members).sqrt()
        };
        Some(PyArray1::from_vec(py, average.iter().enumerate().map(sd).collect()))
    }

    /// The ends of the interval that holds `level` of the predictive distribution; nothing of
    /// classes.
    #[expect(clippy::type_complexity, reason = "it is a tuple for Python")]
    fn interval<'py>(
        &self,
        py: Python<'py>,
        level: f64,
    ) -> Option<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>)> {
        let (low, high) = py.detach(|| self.predictive.interval(level))?;
        let (centre, factor) = self.units;
        let units = |values: Vec<f64>| values.into_iter().map(|v| centre + factor * v).collect();
        Some((PyArray1::from_vec(py, units(low)), PyArray1::from_vec(py, units(high))))
    }
}
