//! Tables: columns from Python.

use std::sync::Mutex;

use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use thinfer::data::table::{self, Column, Values};
use thinfer::{Error, Result};

use crate::errors::caught;

/// A table in memory, until something takes it.
#[pyclass(frozen, module = "thinfer._thinfer")]
pub(crate) struct Table(Mutex<Option<table::Table>>);

impl Table {
    fn of(columns: Vec<Column>) -> PyResult<Self> {
        caught(|| table::Table::from_columns(columns)).map(|table| Self(Mutex::new(Some(table))))
    }

    /// Takes the table out, so that it is not in memory twice.
    pub(crate) fn take(&self) -> Result<table::Table> {
        let taken = self.0.lock().ok().and_then(|mut table| table.take());
        taken.ok_or_else(gone)
    }

    /// Does something with the table, which stays.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&table::Table) -> Result<T>) -> Result<T> {
        match self.0.lock() {
            Ok(table) => table.as_ref().map_or_else(|| Err(gone()), act),
            Err(_) => Err(gone()),
        }
    }
}

fn gone() -> Error {
    Error::Data("the table was used for a run already; make it again".into())
}

#[pymethods]
impl Table {
    /// Columns by name: arrays of numbers, or lists of text and None.
    #[new]
    fn new(names: Vec<String>, columns: Vec<Bound<'_, PyAny>>) -> PyResult<Self> {
        let columns = names
            .into_iter()
            .zip(&columns)
            .map(|(name, cells)| Ok(Column { values: values(&name, cells)?, name }))
            .collect::<PyResult<Vec<Column>>>()?;
        Self::of(columns)
    }

    /// The columns of a matrix of numbers, and one more behind them where it is given.
    #[staticmethod]
    #[pyo3(signature = (names, matrix, more = None))]
    fn from_matrix(
        names: Vec<String>,
        matrix: PyReadonlyArray2<'_, f64>,
        more: Option<(String, Bound<'_, PyAny>)>,
    ) -> PyResult<Self> {
        let matrix = matrix.as_array();
        let mut columns: Vec<Column> = names
            .into_iter()
            .zip(matrix.columns())
            .map(|(name, cells)| Column { name, values: Values::Number(cells.to_vec()) })
            .collect();
        if let Some((name, cells)) = more {
            columns.push(Column { values: values(&name, &cells)?, name });
        }
        Self::of(columns)
    }

    fn __len__(&self) -> PyResult<usize> {
        caught(|| self.with(|table| Ok(table.rows())))
    }
}

fn values(name: &str, cells: &Bound<'_, PyAny>) -> PyResult<Values> {
    if let Ok(numbers) = cells.extract::<PyReadonlyArray1<'_, f64>>() {
        return Ok(Values::Number(numbers.as_array().to_vec()));
    }
    let text = cells.extract::<Vec<Option<String>>>();
    text.map(Values::Text).map_err(|_| {
        let problem = "is neither numbers nor text; convert it to one of them";
        PyTypeError::new_err(format!("table in memory: column `{name}` {problem}"))
    })
}
