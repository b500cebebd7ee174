//! Kernels: compiled by NVRTC at run time, kept as cubins on disk.

use std::ffi::{CStr, CString, c_char};
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::nvrtc::{result, sys};

use super::error::call;
use crate::arena::Kernel;
use crate::error::EngineError;

/// Every kernel source, put together from its parts.
pub(crate) mod source {
    pub(crate) const NORM: &str = concat!(
        include_str!("kernels/common.cuh"),
        include_str!("kernels/tiles.cuh"),
        include_str!("kernels/gradient.cuh"),
        include_str!("kernels/norms.cuh"),
        include_str!("kernels/norm.cu")
    );
    pub(crate) const WHOLE: &str = concat!(
        include_str!("kernels/common.cuh"),
        include_str!("kernels/tiles.cuh"),
        include_str!("kernels/gradient.cuh"),
        include_str!("kernels/norms.cuh"),
        include_str!("kernels/whole.cu")
    );
    pub(crate) const ELEMENTWISE: &str =
        concat!(include_str!("kernels/common.cuh"), include_str!("kernels/elementwise.cu"));
    pub(crate) const UNFOLD: &str =
        concat!(include_str!("kernels/common.cuh"), include_str!("kernels/unfold.cu"));
    pub(crate) use crate::ops::POOL_KERNELS as POOL;
    pub(crate) const CHANNELS: &str =
        concat!(include_str!("kernels/common.cuh"), include_str!("kernels/channels.cu"));
    pub(crate) const VARY: &str = concat!(
        include_str!("kernels/noise.cuh"),
        include_str!("kernels/common.cuh"),
        include_str!("kernels/vary.cu")
    );
    pub(crate) const LOSS: &str =
        concat!(include_str!("kernels/common.cuh"), include_str!("kernels/loss.cu"));
    pub(crate) const DIRECT: &str =
        concat!(include_str!("kernels/common.cuh"), include_str!("kernels/direct.cu"));
    /// For Hopper alone, as the next.
    pub(crate) const FILTER: &str = concat!(
        include_str!("kernels/common.cuh"),
        include_str!("kernels/hopper.cuh"),
        include_str!("kernels/sums.cuh"),
        include_str!("kernels/filter.cu")
    );
    pub(crate) const NARROW: &str = concat!(
        include_str!("kernels/common.cuh"),
        include_str!("kernels/hopper.cuh"),
        include_str!("kernels/pixels.cuh"),
        include_str!("kernels/narrow.cu")
    );
    pub(crate) const STRIDED: &str = concat!(
        include_str!("kernels/common.cuh"),
        include_str!("kernels/hopper.cuh"),
        include_str!("kernels/pixels.cuh"),
        include_str!("kernels/strided.cu")
    );
    pub(crate) const STRIDED_FILTER: &str = concat!(
        include_str!("kernels/common.cuh"),
        include_str!("kernels/hopper.cuh"),
        include_str!("kernels/sums.cuh"),
        include_str!("kernels/strided_filter.cu")
    );
    /// All but those of convolutions for Hopper.
    pub(crate) const USUAL: [&str; 9] =
        [NORM, WHOLE, ELEMENTWISE, UNFOLD, POOL, CHANNELS, VARY, LOSS, DIRECT];
    /// Those of convolutions for Hopper.
    pub(crate) const HOPPER: [&str; 4] = [FILTER, NARROW, STRIDED, STRIDED_FILTER];
}

/// The names of the kernels in a source.
pub(crate) fn entries(source: &str) -> impl Iterator<Item = &str> {
    source.split("__global__ void ").skip(1).filter_map(|text| {
        let bounded = text.strip_prefix("__launch_bounds__");
        let text = bounded.and_then(|rest| rest.split_once(") ")).map_or(text, |(_, rest)| rest);
        text.split('(').next()
    })
}

/// NVRTC's version, where the library can be loaded.
pub(crate) fn version() -> Option<(i32, i32)> {
    // SAFETY: only looks whether the library can be opened.
    if !unsafe { sys::is_culib_present() } {
        return None;
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is there, and both pointers are valid for the call.
    let status = unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    status.result().ok().map(|()| (major, minor))
}

/// Machine code for `arch` (`sm_90`), without looking at the cache.
pub(crate) fn compile(source: &str, defines: &[&str], arch: &str) -> Result<Vec<u8>, EngineError> {
    let text = CString::new(source).map_err(|e| call("kernel source", e))?;
    let mut options = vec![format!("--gpu-architecture={arch}"), "--std=c++17".to_owned()];
    options.extend(defines.iter().map(|d| format!("-D{d}")));
    let program = result::create_program(&text, None).map_err(|e| call("nvrtcCreateProgram", e))?;
    let program = Program(program);
    // SAFETY: the program was created above and lives until the end of this function.
    let compiled = unsafe { result::compile_program(program.0, &options) };
    if let Err(error) = compiled {
        return Err(call("nvrtcCompileProgram", format!("{error}\n{}", program.log())));
    }
    let mut bytes = 0;
    // SAFETY: the program is compiled; the size is written to a valid place.
    unsafe { sys::nvrtcGetCUBINSize(program.0, &raw mut bytes) }
        .result()
        .map_err(|e| call("nvrtcGetCUBINSize", e))?;
    let mut cubin = vec![0u8; bytes];
    // SAFETY: the buffer has the size that NVRTC asked for.
    unsafe { sys::nvrtcGetCUBIN(program.0, cubin.as_mut_ptr().cast::<c_char>()) }
        .result()
        .map_err(|e| call("nvrtcGetCUBIN", e))?;
    Ok(cubin)
}

/// Whether a pass compiles for `arch` (`sm_90`); `None` where NVRTC cannot be loaded. Needs no GPU.
pub fn try_compile(kernel: &Kernel, arch: &str) -> Option<Result<(), EngineError>> {
    version()?;
    Some(compile(kernel.source, kernel.defines, arch).map(|_| ()))
}

struct Program(sys::nvrtcProgram);

impl Program {
    fn log(&self) -> String {
        // SAFETY: the program is alive.
        let Ok(log) = (unsafe { result::get_program_log(self.0) }) else { return String::new() };
        if log.is_empty() {
            return String::new();
        }
        // SAFETY: NVRTC ends its log with a zero.
        unsafe { CStr::from_ptr(log.as_ptr()) }.to_string_lossy().into_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !ptr::eq(self.0, ptr::null()) {
            // SAFETY: created by NVRTC and not destroyed before. A failure leaks a little memory.
            let _ = unsafe { result::destroy_program(self.0) };
        }
    }
}

/// The user's cache folder for this program, where compiled kernels and choices of algorithms are
/// kept; `None` where there is no home.
pub fn cache_folder() -> Option<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(path) if !path.is_empty() => PathBuf::from(path),
        _ => PathBuf::from(std::env::var_os("HOME")?).join(".cache"),
    };
    Some(base.join("thinfer"))
}

/// Machine code from the cache or the compiler. A cache that cannot be read or written costs time
/// and nothing else, so its failures are silent.
pub(crate) fn cubin(source: &str, defines: &[&str], arch: &str) -> Result<Vec<u8>, EngineError> {
    let key = digest(&(source, defines, arch, version(), env!("CARGO_PKG_VERSION")));
    let file = cache_folder().map(|f| f.join("kernels").join(format!("{key:016x}-{arch}.cubin")));
    if let Some(bytes) = file.as_ref().and_then(|f| std::fs::read(f).ok())
        && bytes.starts_with(b"\x7fELF")
    {
        return Ok(bytes);
    }
    let bytes = compile(source, defines, arch)?;
    if let Some(file) = file {
        store(&file, &bytes);
    }
    Ok(bytes)
}

/// Writes beside the file and renames, so that a reader never sees half of it. Several threads may
/// write the same file.
pub(crate) fn store(file: &std::path::Path, bytes: &[u8]) {
    static WRITERS: AtomicUsize = AtomicUsize::new(0);
    let Some(folder) = file.parent() else { return };
    let writer = WRITERS.fetch_add(1, Ordering::Relaxed);
    let beside = file.with_extension(format!("{}-{writer}.part", std::process::id()));
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&beside, bytes));
    if written.and_then(|()| std::fs::rename(&beside, file)).is_err() {
        let _ = std::fs::remove_file(&beside);
    }
}

/// FNV-1a: the same in every version of the compiler, which the standard hasher does not promise.
pub(crate) fn digest<T: Hash>(value: &T) -> u64 {
    struct Fnv(u64);
    impl Hasher for Fnv {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn kernels_are_found_by_name() {
        let names = |source| entries(source).collect::<Vec<_>>();
        assert_eq!(names(source::FILTER), ["filter_sum", "filter_parts"]);
        assert_eq!(names(source::DIRECT), ["direct_forward", "direct_data", "direct_filter"]);
        for source in source::USUAL.into_iter().chain(source::HOPPER) {
            assert!(names(source).len() == source.matches("__global__").count());
            assert!(
                names(source)
                    .iter()
                    .all(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_'))
            );
        }
    }

    /// A kernel may be compiled by two threads at once; the file of one was renamed while the other
    /// wrote it.
    #[test]
    fn threads_that_write_the_same_file_leave_a_whole_one() {
        let folder = std::env::temp_dir().join(format!("thinfer-store-{}", std::process::id()));
        let file = folder.join("kernel.cubin");
        let bytes = vec![7; 1 << 16];
        store(&file, &bytes);
        thread::scope(|scope| {
            let write = || (0..500).for_each(|_| store(&file, &bytes));
            let writers = [scope.spawn(write), scope.spawn(write)];
            while writers.iter().any(|writer| !writer.is_finished()) {
                assert!(std::fs::read(&file).unwrap() == bytes);
            }
        });
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
