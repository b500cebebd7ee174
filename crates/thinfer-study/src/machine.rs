//! What this machine computes with, besides GPUs.

use serde::Serialize;

/// The processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Its name, or its family where the system does not tell.
    pub name: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// The vector unit that is used.
    pub vector_unit: &'static str,
}

impl Cpu {
    /// The one that this runs on.
    pub fn here() -> Self {
        Self {
            name: name().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            vector_unit: thinfer_engine::vector_unit(),
        }
    }
}

/// Linux lists every core with its name; other systems have no file for it.
fn name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
