//! Turning what the libraries say into errors of the engine.

use std::fmt::Debug;

use crate::error::EngineError;

/// A call that failed.
pub(crate) fn call(what: impl Into<String>, problem: impl Debug) -> EngineError {
    EngineError::Cuda { call: what.into(), problem: format!("{problem:?}") }
}

/// `map_err` with the name of the call.
pub(crate) trait Named<T> {
    fn named(self, what: &str) -> Result<T, EngineError>;
}

impl<T, E: Debug> Named<T> for Result<T, E> {
    fn named(self, what: &str) -> Result<T, EngineError> {
        self.map_err(|e| call(what, e))
    }
}
