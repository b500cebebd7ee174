//! Which device a command runs on: what was asked for, or the best there is.

use std::fmt;

use thinfer::device::Device;
use thinfer::{Error, Result};
use thinfer_engine::cuda::{Report, probe};

use crate::context::Context;

/// The option of commands that can use a GPU.
#[derive(clap::Args)]
pub(crate) struct DeviceArgs {
    /// cpu, cuda or cuda:N [default: a GPU where one works]
    #[arg(long, value_parser = parse)]
    device: Option<Device>,
}

/// The same option where a GPU would be of no use.
#[derive(clap::Args)]
pub(crate) struct CpuArgs {
    /// Only cpu: the networks are too small for a GPU
    #[arg(long, value_parser = parse)]
    device: Option<Device>,
}

/// A device that works.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) device: Device,
    /// The name of a GPU.
    name: Option<String>,
    /// Why a GPU that is there was not taken, where nobody chose.
    passed_over: Option<String>,
}

/// As the first line says it: `cpu`, or `cuda:0 (NVIDIA H200)`.
impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            None => write!(f, "{}", self.device),
            Some(name) => write!(f, "{} ({name})", self.device),
        }
    }
}

impl DeviceArgs {
    /// The device that was asked for, or why it does not work; without one, a GPU if it works.
    pub(crate) fn choose(&self) -> Result<Chosen> {
        match self.device {
            Some(Device::Cpu) => Ok(Chosen::cpu()),
            Some(Device::Cuda(index)) => Chosen::gpu(&probe(), index),
            None => Ok(default_device(&probe())),
        }
    }
}

impl CpuArgs {
    /// The CPU, unless something else was asked for.
    pub(crate) fn choose(&self) -> Result<Chosen> {
        match self.device {
            None | Some(Device::Cpu) => Ok(Chosen::cpu()),
            Some(device) => Err(Error::config(
                "--device",
                format!(
                    "is {device}, but this command runs on the cpu alone: its networks are far too small for a GPU, and its chains go side by side on the cores. Leave the option out"
                ),
            )),
        }
    }
}

/// The first GPU where it and all libraries work, the CPU otherwise.
pub(crate) fn default_device(report: &Report) -> Chosen {
    Chosen::gpu(report, 0).unwrap_or_else(|reason| {
        let gpu = report.devices.first();
        let passed_over =
            gpu.map(|gpu| format!("cuda:{} ({}) is not used: {reason}", gpu.index, gpu.name));
        Chosen { passed_over, ..Chosen::cpu() }
    })
}

impl Chosen {
    pub(crate) fn cpu() -> Self {
        Self { device: Device::Cpu, name: None, passed_over: None }
    }

    /// Says so where a GPU is there and cannot be used; to be called where one would be of use.
    pub(crate) fn tell(&self, context: &Context) {
        if let Some(reason) = &self.passed_over {
            context.notice(reason);
        }
    }

    /// The name of a GPU.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn gpu(report: &Report, index: usize) -> Result<Self> {
        let found = report.device(index)?;
        let name = Some(found.name.clone());
        Ok(Self { device: Device::Cuda(index), name, passed_over: None })
    }
}

fn parse(text: &str) -> std::result::Result<Device, String> {
    let number = match text {
        "cpu" => return Ok(Device::Cpu),
        "cuda" => Some(0),
        _ => text
            .strip_prefix("cuda:")
            .filter(|n| n.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|n| n.parse().ok()),
    };
    number.map(Device::Cuda).ok_or_else(|| {
        "allowed are cpu, cuda (the first GPU) and cuda:N (the GPU of that number, from 0)".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer_engine::cuda::{Device as Gpu, Library};

    #[test]
    fn devices_are_read() {
        assert_eq!(parse("cpu"), Ok(Device::Cpu));
        assert_eq!(parse("cuda"), Ok(Device::Cuda(0)));
        assert_eq!(parse("cuda:0"), Ok(Device::Cuda(0)));
        assert_eq!(parse("cuda:12"), Ok(Device::Cuda(12)));
        for wrong in
            ["", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:+1", "cuda:1.5", "cuda:x", "cuda0"]
        {
            assert!(parse(wrong).unwrap_err().contains("cuda:N"), "{wrong}");
        }
    }

    #[test]
    fn devices_are_shown_as_they_are_read() {
        for device in [Device::Cpu, Device::Cuda(0), Device::Cuda(3)] {
            assert_eq!(parse(&device.to_string()), Ok(device));
        }
        let gpu = Chosen { device: Device::Cuda(1), name: Some("GPU".into()), passed_over: None };
        assert_eq!([gpu.to_string(), Chosen::cpu().to_string()], ["cuda:1 (GPU)", "cpu"]);
    }

    #[test]
    fn without_libraries_the_cpu_is_taken() {
        assert_eq!(default_device(&Report::default()), Chosen::cpu());
    }

    #[test]
    fn a_gpu_that_is_there_is_not_passed_over_in_silence() {
        let library = |name, found: Option<&str>, needed| Library {
            name,
            found: found.map(str::to_owned),
            problem: None,
            needed,
            get: "install it",
        };
        let gpu = Gpu { index: 0, name: "NVIDIA H200".into(), capability: (9, 0), memory: 1 << 37 };
        let mut report = Report {
            libraries: vec![library("driver", Some("13.0"), "13.0"), library("cuDNN", None, "9.0")],
            devices: vec![gpu],
            ..Report::default()
        };
        let chosen = default_device(&report);
        assert_eq!((chosen.device, chosen.to_string().as_str()), (Device::Cpu, "cpu"));
        let asked = Chosen::gpu(&report, 0).unwrap_err();
        assert_eq!(
            chosen.passed_over.as_deref(),
            Some(
                "cuda:0 (NVIDIA H200) is not used: cuDNN: found nothing, needed 9.0 or newer; install it"
            )
        );
        assert!(chosen.passed_over.is_some_and(|text| text.ends_with(&asked.to_string())));
        // A GPU that would do is named where the first one does not.
        let libraries = report.libraries[..1].to_vec();
        let old = Gpu { index: 0, name: "Old".into(), capability: (7, 0), memory: 1 << 34 };
        let good = Gpu { index: 1, ..report.devices[0].clone() };
        let mixed = Report { libraries, devices: vec![old, good], ..Report::default() };
        let chosen = default_device(&mixed);
        assert_eq!(chosen.device, Device::Cpu);
        let told = chosen.passed_over.unwrap_or_default();
        assert!(told.starts_with("cuda:0 (Old) is not used: "), "{told}");
        assert!(told.contains("use `--device cuda:1` (NVIDIA H200)"), "{told}");
        report.libraries.pop();
        assert_eq!(default_device(&report).to_string(), "cuda:0 (NVIDIA H200)");
        assert_eq!(default_device(&report).passed_over, None);
    }

    #[test]
    fn commands_for_the_cpu_say_why() {
        let asked = |device| CpuArgs { device }.choose();
        assert_eq!(asked(None).unwrap(), Chosen::cpu());
        assert_eq!(asked(Some(Device::Cpu)).unwrap(), Chosen::cpu());
        let error = asked(Some(Device::Cuda(0))).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("far too small"), "{error}");
    }
}
