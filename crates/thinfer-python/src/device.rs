//! Where a run computes, as Python says it.

use thinfer::device::Device;
use thinfer::engine::cuda::probe;
use thinfer::{Error, Result};

/// The device of this name and its name in `run.json`. Without a name it is the first GPU where it
/// and all its libraries work, and else the CPU, as in the program.
pub(crate) fn choose(name: Option<&str>) -> Result<(Device, String)> {
    match name {
        Some("cpu") => Ok(cpu()),
        Some(name) => gpu(number(name)?),
        None => Ok(gpu(0).unwrap_or_else(|_| cpu())),
    }
}

fn cpu() -> (Device, String) {
    (Device::Cpu, Device::Cpu.to_string())
}

fn gpu(index: usize) -> Result<(Device, String)> {
    let report = probe();
    let found = report.device(index)?;
    let device = Device::Cuda(index);
    Ok((device, format!("{device} ({})", found.name)))
}

fn number(name: &str) -> Result<usize> {
    let digits = if name == "cuda" { Some("0") } else { name.strip_prefix("cuda:") };
    let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| {
        let problem = format!(
            "is \"{name}\", but must be \"cpu\", \"cuda\" (the first GPU) or \"cuda:N\" (the GPU of that number, from 0)"
        );
        Error::config("device", problem)
    })
}
