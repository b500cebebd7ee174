//! One GPU: its context, its streams, the library handles and the compiled kernels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

use cudarc::driver::sys::{
    CUdevice_attribute as Attribute, CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode,
};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaGraph, CudaModule, CudaSlice, CudaStream, DevicePtr, DeviceRepr,
    DriverError, LaunchConfig, PushKernelArg, ValidAsZeroBits,
};
use cudarc::nvrtc::Ptx;
use cudarc::{cublaslt, cudnn};
use rayon::prelude::*;

use super::dnn;
use super::error::{Named, call};
use super::{nvrtc, probe};
use crate::error::EngineError;

/// An open GPU.
///
/// Streams are joined by hand, so event tracking of the bindings is off: its events would break
/// stream capture.
pub struct Gpu {
    pub(crate) ctx: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
    /// For work that nothing on the main stream waits for at once.
    pub(crate) side: Arc<CudaStream>,
    pub(crate) dnn: dnn::Handle,
    /// cuDNN on the second stream.
    pub(crate) dnn_side: dnn::Handle,
    pub(crate) blas: Blas,
    arch: String,
    name: String,
    multiprocessors: u32,
    modules: Mutex<BTreeMap<u64, Arc<CudaModule>>>,
    /// Machine code of kernels that were compiled ahead and are not loaded yet.
    ready: Mutex<BTreeMap<u64, Vec<u8>>>,
    /// Kernels that were asked for, by source and name.
    entries: Mutex<BTreeSet<(u64, String)>>,
    /// What was put on the stream last, for the message of a fault.
    pub(super) launched: Mutex<String>,
}

/// Held for reading while a stream is captured, and for writing by calls that wait for the whole
/// device: these end the captures of every other run in the process.
static DEVICE: RwLock<()> = RwLock::new(());

/// How often a capture is begun before its loss is an error.
const CAPTURE_TRIES: usize = 20;

/// What the driver says at the end of a capture.
type CapturedGraph = Result<Option<CudaGraph>, DriverError>;

/// No stream is captured until the guard is dropped. For libraries whose handles are opened or
/// closed: cuDNN waits for the whole device then.
pub(super) fn no_captures() -> RwLockWriteGuard<'static, ()> {
    DEVICE.write().unwrap_or_else(PoisonError::into_inner)
}

/// What compilers call Hopper with all its instructions.
pub(super) const HOPPER: &str = "sm_90a";

/// An argument of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// An address; 0 is a null pointer.
    At(u64),
    U32(u32),
    F64(f64),
    /// A struct of at most sixteen 4-byte fields.
    Words(Vec<u32>),
}

/// Room for one argument of a kernel. CUDA reads as many bytes as the parameter has.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Slot(pub(crate) [u64; 8]);

// SAFETY: plain numbers, and the kernel's parameter is never larger than a slot.
unsafe impl DeviceRepr for Slot {}

impl Value {
    pub(crate) fn slot(&self) -> Slot {
        let mut slot = Slot([0; 8]);
        match self {
            Value::At(address) => slot.0[0] = *address,
            Value::U32(value) => slot.0[0] = u64::from(*value),
            Value::F64(value) => slot.0[0] = value.to_bits(),
            Value::Words(words) => {
                for (i, word) in words.iter().enumerate() {
                    slot.0[i / 2] |= u64::from(*word) << (32 * (i % 2));
                }
            }
        }
        slot
    }
}

/// A cuBLASLt handle.
pub(crate) struct Blas(pub(crate) cublaslt::sys::cublasLtHandle_t);

// SAFETY: cuBLASLt documents its handle as usable from several threads at once.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

impl Blas {
    fn new() -> Result<Self, EngineError> {
        let _guard = no_captures();
        Ok(Self(cublaslt::result::create_handle().named("cublasLtCreate")?))
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        let _guard = no_captures();
        // SAFETY: created by cuBLASLt and not destroyed before.
        let _ = unsafe { cublaslt::result::destroy_handle(self.0) };
    }
}

impl Gpu {
    /// Opens a GPU by number, or says which library is missing or too old and how to get it.
    pub fn open(index: usize) -> Result<Arc<Gpu>, EngineError> {
        probe::probe().device(index)?;
        let ctx = CudaContext::new(index).named("cuCtxCreate")?;
        // SAFETY: nothing is allocated yet, and the two streams of this context are ordered by
        // hand.
        unsafe { ctx.disable_event_tracking() };
        let stream = ctx.new_stream().named("cuStreamCreate")?;
        let (major, minor) = ctx.compute_capability().named("compute capability")?;
        let multiprocessors =
            ctx.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).named("device")?;
        let name = ctx.name().named("cuDeviceGetName")?;
        let dnn = dnn::Handle::new(stream.cu_stream() as cudnn::sys::cudaStream_t)?;
        let side = ctx.new_stream().named("cuStreamCreate")?;
        let dnn_side = dnn::Handle::new(side.cu_stream() as cudnn::sys::cudaStream_t)?;
        let blas = Blas::new()?;
        Ok(Arc::new(Self {
            ctx,
            stream,
            side,
            dnn,
            dnn_side,
            blas,
            // The tensor cores of Hopper are used by instructions that only this name allows.
            arch: if (major, minor) == (9, 0) {
                HOPPER.into()
            } else {
                format!("sm_{major}{minor}")
            },
            name,
            multiprocessors: multiprocessors.max(1) as u32,
            modules: Mutex::new(BTreeMap::new()),
            ready: Mutex::new(BTreeMap::new()),
            entries: Mutex::new(BTreeSet::new()),
            launched: Mutex::new("nothing".to_owned()),
        }))
    }

    /// Its number.
    pub(super) fn index(&self) -> usize {
        self.ctx.ordinal()
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many multiprocessors it has.
    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// Its architecture as compilers name it, `sm_90a`.
    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// Whether kernels for Hopper alone run on it.
    pub(crate) fn is_hopper(&self) -> bool {
        self.arch == HOPPER
    }

    /// Free and total bytes of device memory.
    pub fn memory(&self) -> Result<(usize, usize), EngineError> {
        self.ctx.mem_get_info().named("cuMemGetInfo")
    }

    /// A kernel: compiled for this device once a process, and kept on disk as machine code.
    pub(crate) fn function(
        &self,
        source: &'static str,
        entry: &str,
        defines: &[&str],
    ) -> Result<CudaFunction, EngineError> {
        let key = nvrtc::digest(&(source, defines));
        let mut modules = locked(&self.modules);
        let module = if let Some(module) = modules.get(&key) {
            module.clone()
        } else {
            let code = Ptx::from_binary(self.code(key, source, defines)?);
            let module = self.ctx.load_module(code).named("cuModuleLoadData")?;
            modules.insert(key, module.clone());
            module
        };
        locked(&self.entries).insert((nvrtc::digest(&source), entry.to_owned()));
        module.load_function(entry).named(entry)
    }

    /// Kernels of a source that nobody has asked for.
    pub(super) fn unused<'a>(&self, source: &'a str) -> Vec<&'a str> {
        let (entries, digest) = (locked(&self.entries), nvrtc::digest(&source));
        let used = |entry: &str| entries.contains(&(digest, entry.to_owned()));
        nvrtc::entries(source).filter(|entry| !used(entry)).collect()
    }

    /// Compiles kernels that will be asked for, all at once: a first start would wait for each.
    pub(crate) fn prepare<'a>(
        &self,
        kernels: impl Iterator<Item = (&'static str, &'a [&'a str])>,
    ) -> Result<(), EngineError> {
        let wanted: BTreeMap<u64, _> = kernels
            .map(|kernel| (nvrtc::digest(&kernel), kernel))
            .filter(|(key, _)| !locked(&self.modules).contains_key(key))
            .collect();
        let compiled: Vec<(u64, Result<Vec<u8>, EngineError>)> = wanted
            .into_par_iter()
            .map(|(key, (source, defines))| (key, self.code(key, source, defines)))
            .collect();
        for (key, code) in compiled {
            let module = self.ctx.load_module(Ptx::from_binary(code?)).named("cuModuleLoadData")?;
            locked(&self.modules).insert(key, module);
        }
        Ok(())
    }

    /// Machine code of a kernel that is not loaded: compiled ahead, from the cache or from the
    /// compiler.
    fn code(&self, key: u64, source: &str, defines: &[&str]) -> Result<Vec<u8>, EngineError> {
        let ready = locked(&self.ready).remove(&key);
        ready.map_or_else(|| nvrtc::cubin(source, defines, &self.arch), Ok)
    }

    /// Compiles a kernel that may be asked for later. One that cannot be compiled is reported by
    /// who asks for it.
    pub(super) fn make_ready(&self, source: &str, defines: &[&str]) {
        let key = nvrtc::digest(&(source, defines));
        let known =
            locked(&self.modules).contains_key(&key) || locked(&self.ready).contains_key(&key);
        if !known && let Ok(code) = nvrtc::cubin(source, defines, &self.arch) {
            locked(&self.ready).insert(key, code);
        }
    }

    /// Captures what `work` puts on the stream into a graph. What is captured must have run once
    /// before: loading a kernel for the first time cannot be captured.
    ///
    /// A library that waits for the whole device, in any thread of the process, ends a capture.
    /// Nothing has run then, so the capture is made again.
    pub(crate) fn capture(
        &self,
        mut work: impl FnMut() -> Result<(), EngineError>,
    ) -> Result<CudaGraph, EngineError> {
        let lost = DriverError(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        let mut tries = 1;
        loop {
            let (done, graph) = self.try_capture(&mut work)?;
            if tries < CAPTURE_TRIES && graph.as_ref().is_err_and(|error| *error == lost) {
                tries += 1;
                continue;
            }
            done?;
            let graph = graph.named("cuStreamEndCapture")?;
            return graph.ok_or_else(|| call("cuStreamEndCapture", "no graph"));
        }
    }

    /// One capture: how `work` ended, and the graph. Both fail where something else ended the
    /// capture.
    fn try_capture(
        &self,
        work: impl FnOnce() -> Result<(), EngineError>,
    ) -> Result<(Result<(), EngineError>, CapturedGraph), EngineError> {
        let _capturing = DEVICE.read().unwrap_or_else(PoisonError::into_inner);
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).named("cuStreamBeginCapture")?;
        let done = work();
        // The capture ends whatever happened in it: a stream left capturing takes no more work.
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0));
        Ok((done, graph))
    }

    /// Puts a kernel with 256 threads a block on the stream.
    pub(crate) fn launch(
        &self,
        function: &CudaFunction,
        blocks: usize,
        values: &[Value],
    ) -> Result<(), EngineError> {
        self.launch_blocks(function, blocks as u32, 256, values)
    }

    /// Puts a kernel of one block on the stream.
    pub(crate) fn launch_small(
        &self,
        function: &CudaFunction,
        threads: u32,
        values: &[Value],
    ) -> Result<(), EngineError> {
        self.launch_blocks(function, 1, threads, values)
    }

    fn launch_blocks(
        &self,
        function: &CudaFunction,
        blocks: u32,
        threads: u32,
        values: &[Value],
    ) -> Result<(), EngineError> {
        let slots: Vec<Slot> = values.iter().map(Value::slot).collect();
        let mut builder = self.stream.launch_builder(function);
        for slot in &slots {
            builder.arg(slot);
        }
        let config = LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: callers give the kernel the arguments of its signature and lengths that stay
        // inside the buffers.
        unsafe { builder.launch(config) }.named("cuLaunchKernel")?;
        Ok(())
    }

    /// Copies `from` to the start of a buffer.
    pub(crate) fn write<T: DeviceRepr>(
        &self,
        to: &mut CudaSlice<T>,
        from: &[T],
    ) -> Result<(), EngineError> {
        if from.is_empty() {
            return Ok(());
        }
        self.stream.memcpy_htod(from, to).named("cuMemcpyHtoD")?;
        self.wait()
    }

    /// Waits for everything on the stream.
    pub(crate) fn wait(&self) -> Result<(), EngineError> {
        self.stream.synchronize().named("cuStreamSynchronize")
    }

    /// A zeroed buffer.
    pub(crate) fn zeros<T: DeviceRepr + ValidAsZeroBits>(
        &self,
        n: usize,
    ) -> Result<CudaSlice<T>, EngineError> {
        self.stream.alloc_zeros(n.max(1)).map_err(|error| self.not_allocated::<T>(n, error))
    }

    /// Why `n` values could not be allocated.
    fn not_allocated<T>(&self, n: usize, error: DriverError) -> EngineError {
        if error.0 != CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return call("cuMemAlloc", error);
        }
        let free = self.memory().map_or(0, |(free, _)| free);
        let mib = |bytes: usize| bytes.div_ceil(1 << 20);
        EngineError::Cuda {
            call: "memory".into(),
            problem: format!(
                "{} MiB more are wanted and {} are free; use a smaller batch, or end other programs on this GPU",
                mib(n * size_of::<T>()),
                mib(free)
            ),
        }
    }

    /// A buffer with a copy of `from`; the host may drop `from` at once.
    pub(crate) fn upload<T: DeviceRepr>(&self, from: &[T]) -> Result<CudaSlice<T>, EngineError> {
        let buffer = self.stream.clone_htod(from).named("cuMemcpyHtoD")?;
        self.wait()?;
        Ok(buffer)
    }

    /// A copy of a device buffer.
    pub(crate) fn download<T: DeviceRepr>(
        &self,
        from: &CudaSlice<T>,
    ) -> Result<Vec<T>, EngineError> {
        let copy = self.stream.clone_dtoh(from).named("cuMemcpyDtoH")?;
        self.wait()?;
        Ok(copy)
    }

    /// Copies a device buffer to the host beside what is under way on the stream, which must not
    /// write it.
    pub(crate) fn read_beside<T: DeviceRepr>(
        &self,
        from: &CudaSlice<T>,
        into: &mut [T],
    ) -> Result<(), EngineError> {
        if into.is_empty() {
            return Ok(());
        }
        self.side.memcpy_dtoh(&from.slice(..into.len()), into).named("cuMemcpyDtoH")?;
        self.side.synchronize().named("cuStreamSynchronize")
    }

    /// Copies a part of a device buffer to the host.
    pub(crate) fn read_from<T: DeviceRepr>(
        &self,
        from: &CudaSlice<T>,
        first: usize,
        into: &mut [T],
    ) -> Result<(), EngineError> {
        if into.is_empty() {
            return Ok(());
        }
        let part = from.slice(first..first + into.len());
        self.stream.memcpy_dtoh(&part, into).named("cuMemcpyDtoH")?;
        self.wait()
    }

    /// The address of a buffer, for kernels and libraries.
    pub(crate) fn address<T>(&self, of: &CudaSlice<T>) -> u64 {
        of.device_ptr(&self.stream).0
    }
}

/// What is behind a lock. A map is whole also where a thread that held it has failed.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
