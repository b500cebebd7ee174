//! What of CUDA this machine has, for `thinfer doctor` and for errors that help.

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{self, CudaContext};
use cudarc::{cublaslt, cudnn, nvrtc as rtc};

use super::nvrtc;
use crate::error::EngineError;

/// What was found of CUDA on this machine.
#[derive(Clone, Debug, Default)]
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
#[derive(Clone, Debug)]
pub struct Library {
    /// Its name.
    pub name: &'static str,
    /// Its version, where it was found.
    pub found: Option<String>,
    /// The oldest version that works.
    pub needed: &'static str,
    /// How to get it.
    pub get: &'static str,
}

/// One GPU.
#[derive(Clone, Debug)]
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

const DRIVER: &str = "install NVIDIA's driver 580 or newer for this GPU";
const TOOLKIT: &str = "install the CUDA 13 toolkit, or `pip install nvidia-cuda-nvrtc \
    nvidia-cublas` and put their lib folders on LD_LIBRARY_PATH";
const DNN: &str = "install cuDNN 9 for CUDA 13, or `pip install nvidia-cudnn-cu13` and put its \
    lib folder on LD_LIBRARY_PATH";

/// Looks for the driver, the libraries and the GPUs. Never fails and never panics.
pub fn probe() -> Report {
    let mut report = Report::default();
    // SAFETY: these only try to open a library and ask for its version.
    let present = unsafe {
        [
            driver::sys::is_culib_present(),
            rtc::sys::is_culib_present(),
            cublaslt::sys::is_culib_present(),
            cudnn::sys::is_culib_present(),
        ]
    };
    if present[0] {
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
    let found = report.driver.clone();
    report.libraries.push(Library { name: "driver", found, needed: "13.0", get: DRIVER });
    let found = nvrtc::version().map(|(major, minor)| format!("{major}.{minor}"));
    report.libraries.push(Library { name: "NVRTC", found, needed: "13.0", get: TOOLKIT });
    let found = present[2].then(|| {
        // SAFETY: the library is there; the call has no arguments.
        let v = unsafe { cublaslt::sys::cublasLtGetVersion() };
        format!("{}.{}.{}", v / 10000, v / 100 % 100, v % 100)
    });
    report.libraries.push(Library { name: "cuBLASLt", found, needed: "13.0", get: TOOLKIT });
    let found = present[3].then(|| {
        let v = cudnn::result::get_version();
        format!("{}.{}.{}", v / 10000, v / 100 % 100, v % 100)
    });
    report.libraries.push(Library { name: "cuDNN", found, needed: "9.0", get: DNN });
    report
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

/// The first library that is missing or too old, as an error.
pub(crate) fn require_libraries() -> Result<(), EngineError> {
    let report = probe();
    for library in &report.libraries {
        let major = |text: &str| text.split('.').next().and_then(|m| m.parse::<u32>().ok());
        let fits = library.found.as_deref().is_some_and(|f| major(f) >= major(library.needed));
        if !fits {
            return Err(EngineError::Library {
                library: library.name,
                found: library.found.clone().unwrap_or_else(|| "nothing".into()),
                needed: format!("{} or newer", library.needed),
                get: library.get.into(),
            });
        }
    }
    if let Some(problem) = report.problem {
        return Err(EngineError::Library {
            library: "driver",
            found: problem,
            needed: "a driver that works".into(),
            get: DRIVER.into(),
        });
    }
    Ok(())
}
