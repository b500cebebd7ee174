//! What of CUDA this machine has, for `thinfer doctor` and for errors that help.

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{self, CudaContext};
use cudarc::{cublaslt, cudnn, nvrtc as rtc};

use serde::Serialize;

use super::nvrtc;
use crate::error::EngineError;

/// What was found of CUDA on this machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The CUDA version that the driver supports, as 13.0.
    pub driver: Option<String>,
    /// Libraries in the order in which they are needed.
    pub libraries: Vec<Library>,
    /// GPUs that the driver lists.
    pub devices: Vec<Device>,
    /// What the driver said where it is there but does not work.
    pub problem: Option<String>,
}

/// One library.
#[derive(Clone, Debug, Serialize)]
pub struct Library {
    /// Its name.
    pub name: &'static str,
    /// Its version, where it was found.
    pub found: Option<String>,
    /// What is wrong with the file that was found, where it cannot be asked for a version.
    pub problem: Option<String>,
    /// The oldest version that works.
    pub needed: &'static str,
    /// How to get it.
    pub get: &'static str,
}

/// One GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// Its number in `cuda:N`.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its compute capability.
    pub capability: (i32, i32),
    /// All of its memory, in bytes.
    pub memory: usize,
}

const DRIVER: &str =
    "install NVIDIA's driver 580 or newer; without an NVIDIA GPU use `--device cpu`";
const TOOLKIT: &str = "install the CUDA 13 toolkit, or `pip install nvidia-cuda-nvrtc \
    nvidia-cublas` and put their lib folders on LD_LIBRARY_PATH";
const DNN: &str = "install cuDNN 9 for CUDA 13, or `pip install nvidia-cudnn-cu13` and put its \
    lib folder on LD_LIBRARY_PATH";

/// What is called of the driver here.
const DRIVER_CALLS: [&str; 7] = [
    "cuDriverGetVersion",
    "cuInit",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetName",
];

/// Looks for the driver, the libraries and the GPUs. Never fails and never panics.
pub fn probe() -> Report {
    let mut report = Report::default();
    // The bindings panic at a call that a library lacks, so every one is looked for before.
    macro_rules! complete {
        ($sys:path, $calls:expr) => {{
            use $sys as sys;
            // SAFETY: only looks whether the library can be opened, and at the names in it.
            unsafe {
                if sys::is_culib_present() {
                    let here = |name: &str| sys::culib().get::<*const ()>(name.as_bytes()).is_ok();
                    State::of($calls, here)
                } else {
                    State::Absent
                }
            }
        }};
    }
    let state = complete!(driver::sys, &DRIVER_CALLS);
    if state == State::Whole {
        let mut version = 0;
        // SAFETY: the driver library is there and the place for the answer is valid.
        let status = unsafe { driver::sys::cuDriverGetVersion(&raw mut version) };
        if status.result().is_ok() {
            report.driver = Some(format!("{}.{}", version / 1000, version % 1000 / 10));
        }
        match devices() {
            Ok(devices) => report.devices = devices,
            Err(problem) => report.problem = Some(problem),
        }
    }
    let driver = report.driver.clone();
    report.libraries.push(Library::of("driver", &state, "13.0", DRIVER, || driver));
    let state = complete!(rtc::sys, &["nvrtcVersion"]);
    report.libraries.push(Library::of("NVRTC", &state, "13.0", TOOLKIT, || {
        nvrtc::version().map(|(major, minor)| format!("{major}.{minor}"))
    }));
    let state = complete!(cublaslt::sys, &["cublasLtGetVersion"]);
    report.libraries.push(Library::of("cuBLASLt", &state, "13.0", TOOLKIT, || {
        // SAFETY: the library is there and has the call, which takes no arguments.
        let v = unsafe { cublaslt::sys::cublasLtGetVersion() };
        Some(format!("{}.{}.{}", v / 10000, v / 100 % 100, v % 100))
    }));
    let state = complete!(cudnn::sys, &["cudnnGetVersion"]);
    report.libraries.push(Library::of("cuDNN", &state, "9.0", DNN, || {
        let v = cudnn::result::get_version();
        Some(format!("{}.{}.{}", v / 10000, v / 100 % 100, v % 100))
    }));
    report
}

/// What became of opening a library.
#[derive(Debug, PartialEq)]
enum State {
    Absent,
    /// Opened, but this call is not in it.
    Without(&'static str),
    Whole,
}

impl State {
    /// Of a library that was opened, which must have these calls.
    fn of(calls: &[&'static str], here: impl Fn(&str) -> bool) -> Self {
        let missing = calls.iter().find(|name| !here(name));
        missing.map_or(State::Whole, |name| State::Without(name))
    }
}

fn devices() -> Result<Vec<Device>, String> {
    let say = |e: driver::DriverError| format!("{e}");
    driver::result::init().map_err(say)?;
    let count = CudaContext::device_count().map_err(say)?;
    let mut devices = Vec::new();
    for index in 0..count.max(0) {
        let device = driver::result::device::get(index).map_err(say)?;
        let attribute = |which| {
            // SAFETY: the device was listed by the driver just now.
            unsafe { driver::result::device::get_attribute(device, which) }.map_err(say)
        };
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        // SAFETY: as above.
        let memory = unsafe { driver::result::device::total_mem(device) }.map_err(say)?;
        let name = driver::result::device::get_name(device).map_err(say)?;
        devices.push(Device { index: index as usize, name, capability, memory });
    }
    Ok(devices)
}

/// The oldest compute capability that the kernels are made for.
const CAPABILITY: (i32, i32) = (8, 0);

impl Library {
    fn of(
        name: &'static str,
        state: &State,
        needed: &'static str,
        get: &'static str,
        version: impl FnOnce() -> Option<String>,
    ) -> Self {
        let (found, problem) = match state {
            State::Whole => (version(), None),
            State::Without(call) => (None, Some(format!("a library without `{call}`"))),
            State::Absent => (None, None),
        };
        Self { name, found, problem, needed, get }
    }

    /// What was found, in words: a version, a file that cannot be used, or nothing.
    pub fn shown(&self) -> &str {
        self.found.as_deref().or(self.problem.as_deref()).unwrap_or("nothing")
    }

    /// Whether it was found in a version that works.
    pub fn fits(&self) -> bool {
        let version = |text: &str| -> Vec<u32> {
            text.split('.').map(|part| part.parse().unwrap_or(0)).collect()
        };
        self.found.as_deref().is_some_and(|found| version(found) >= version(self.needed))
    }
}

impl Device {
    /// Whether it is new enough.
    pub fn fits(&self) -> bool {
        self.capability >= CAPABILITY
    }
}

impl Report {
    /// The first library that is missing or too old, as an error.
    pub fn check_libraries(&self) -> Result<(), EngineError> {
        if let Some(library) = self.libraries.iter().find(|library| !library.fits()) {
            return Err(EngineError::Library {
                library: library.name,
                found: library.shown().into(),
                needed: format!("{} or newer", library.needed),
                get: library.get.into(),
            });
        }
        if let Some(problem) = &self.problem {
            return Err(EngineError::Library {
                library: "driver",
                found: problem.clone(),
                needed: "a driver that works".into(),
                get: DRIVER.into(),
            });
        }
        Ok(())
    }

    /// The GPU `cuda:index`, where everything that it needs is there.
    pub fn device(&self, index: usize) -> Result<&Device, EngineError> {
        self.check_libraries()?;
        let device = self.devices.get(index).ok_or_else(|| {
            let found = match self.devices.len() {
                0 => "no GPU".into(),
                1 => "1 GPU, cuda:0".into(),
                count => format!("{count} GPUs, cuda:0 to cuda:{}", count - 1),
            };
            EngineError::Library {
                library: "GPU",
                found,
                needed: format!("cuda:{index}"),
                get: "choose one of those, or use `--device cpu`".into(),
            }
        })?;
        if !device.fits() {
            let (major, minor) = device.capability;
            let other = self.devices.iter().find(|other| other.fits()).map_or(String::new(), |o| {
                format!("`--device cuda:{}` ({}), or ", o.index, o.name)
            });
            return Err(EngineError::Library {
                library: "GPU",
                found: format!("{} with compute capability {major}.{minor}", device.name),
                needed: format!("{}.{} (Ampere) or newer", CAPABILITY.0, CAPABILITY.1),
                get: format!("use {other}`--device cpu`"),
            });
        }
        Ok(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &'static str, found: Option<&str>, needed: &'static str) -> Library {
        let found = found.map(str::to_owned);
        Library { name, found, problem: None, needed, get: "install it" }
    }

    fn gpu(index: usize, capability: (i32, i32)) -> Device {
        Device { index, name: "GPU".into(), capability, memory: 1 << 30 }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for (found, needed, fits) in [
            (Some("13.0"), "13.0", true),
            (Some("13.2"), "13.0", true),
            (Some("9.10.2"), "9.2", true),
            (Some("12.8"), "13.0", false),
            (Some("8.9.7"), "9.0", false),
            (None, "9.0", false),
        ] {
            assert_eq!(library("x", found, needed).fits(), fits, "{found:?} of {needed}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut report = Report {
            libraries: vec![
                library("driver", Some("13.0"), "13.0"),
                library("cuDNN", Some("8.9.7"), "9.0"),
            ],
            devices: vec![gpu(0, (9, 0)), gpu(1, (7, 5))],
            ..Report::default()
        };
        let message = |report: &Report, index| report.device(index).unwrap_err().to_string();
        assert_eq!(message(&report, 0), "cuDNN: found 8.9.7, needed 9.0 or newer; install it");
        report.libraries[1].found = Some("9.13.0".into());
        assert_eq!(report.device(0).map(|d| d.index), Ok(0));
        let old = message(&report, 1);
        assert!(old.contains("compute capability 7.5"), "{old}");
        assert!(old.ends_with("; use `--device cuda:0` (GPU), or `--device cpu`"), "{old}");
        let alone = Report { devices: vec![gpu(0, (7, 5))], ..report.clone() };
        assert!(message(&alone, 0).ends_with("newer; use `--device cpu`"));
        assert!(message(&report, 2).contains("found 2 GPUs, cuda:0 to cuda:1, needed cuda:2"));
        report.problem = Some("no device".into());
        assert!(message(&report, 0).starts_with("driver: found no device"));
    }

    #[test]
    fn a_library_without_a_call_is_not_asked_for_its_version() {
        let lacking = State::of(&["a", "b", "c"], |name| name == "a");
        assert_eq!(lacking, State::Without("b"));
        assert_eq!(State::of(&["a"], |_| true), State::Whole);
        let asked = [State::Absent, lacking, State::Whole].map(|state| {
            Library::of("NVRTC", &state, "13.0", "install it", || Some("13.1".into()))
        });
        let shown = ["nothing", "a library without `b`", "13.1"];
        assert_eq!(asked.each_ref().map(Library::shown), shown);
        assert_eq!(asked.each_ref().map(Library::fits), [false, false, true]);
        let report = Report { libraries: vec![asked[1].clone()], ..Report::default() };
        assert_eq!(
            report.check_libraries().unwrap_err().to_string(),
            "NVRTC: found a library without `b`, needed 13.0 or newer; install it"
        );
    }

    /// Also where nothing of CUDA is there.
    #[test]
    fn looking_never_fails() {
        let report = probe();
        assert_eq!(report.libraries.len(), 4);
        assert!(report.libraries.iter().all(|l| !l.get.is_empty()));
    }
}
