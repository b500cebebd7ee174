//! The cuDNN graph API, as much of it as convolutions need.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind,
};
use cudarc::cudnn::{result, sys::cudnnDataType_t as DataType};

use super::context::no_captures;
use super::error::Named;
use crate::error::EngineError;

/// A cuDNN handle tied to the one stream. Its users take turns.
pub(crate) struct Handle(Mutex<Raw>);

struct Raw(sys::cudnnHandle_t);

// SAFETY: a cuDNN handle may be used from any thread, one at a time; the mutex sees to that.
unsafe impl Send for Raw {}

impl Handle {
    pub(crate) fn new(stream: sys::cudaStream_t) -> Result<Self, EngineError> {
        let raw = Raw::new()?;
        // SAFETY: both were just made and outlive each other in `Gpu`.
        unsafe { result::set_stream(raw.0, stream) }.named("cudnnSetStream")?;
        Ok(Self(Mutex::new(raw)))
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(sys::cudnnHandle_t) -> T) -> T {
        work(self.0.lock().unwrap_or_else(PoisonError::into_inner).0)
    }
}

impl Raw {
    fn new() -> Result<Self, EngineError> {
        let _guard = no_captures();
        Ok(Self(result::create_handle().named("cudnnCreate")?))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _guard = no_captures();
        // SAFETY: created by cuDNN and not destroyed before.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

/// One descriptor of the graph API.
pub(crate) struct Desc(sys::cudnnBackendDescriptor_t);

// SAFETY: a finalized descriptor is not tied to a thread; it is used by one thread at a time.
unsafe impl Send for Desc {}
// SAFETY: a finalized descriptor is only read.
unsafe impl Sync for Desc {}

impl Drop for Desc {
    fn drop(&mut self) {
        // SAFETY: created by cuDNN and not destroyed before.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}

impl Desc {
    fn new(kind: Kind) -> Result<Self, EngineError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the place for the descriptor is valid.
        let status = unsafe { sys::cudnnBackendCreateDescriptor(kind, &raw mut raw) };
        status.result().named(&format!("{kind:?}"))?;
        Ok(Self(raw))
    }

    /// Sets an attribute. `V` must be the type that `tag` stands for.
    fn set<T>(self, name: Name, tag: Type, values: &[T]) -> Result<Self, EngineError> {
        let from = values.as_ptr().cast::<c_void>();
        // SAFETY: cuDNN reads `values.len()` values of the type `tag` names, which `T` is.
        let status =
            unsafe { sys::cudnnBackendSetAttribute(self.0, name, tag, values.len() as i64, from) };
        status.result().named(&format!("{name:?}"))?;
        Ok(self)
    }

    fn ints(self, name: Name, values: &[i64]) -> Result<Self, EngineError> {
        self.set(name, Type::CUDNN_TYPE_INT64, values)
    }

    fn link(self, name: Name, to: &Desc) -> Result<Self, EngineError> {
        self.set(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &[to.0])
    }

    fn finish(self) -> Result<Self, EngineError> {
        // SAFETY: the descriptor is alive.
        unsafe { sys::cudnnBackendFinalize(self.0) }.result().named("cudnnBackendFinalize")?;
        Ok(self)
    }

    /// Reads an attribute; gives back how many values there are in all.
    fn get<T>(&self, name: Name, tag: Type, into: &mut [T]) -> Result<usize, EngineError> {
        let mut count = 0;
        let to = if into.is_empty() { ptr::null_mut() } else { into.as_mut_ptr().cast() };
        // SAFETY: cuDNN writes at most `into.len()` values of the type `tag` names, which `T` is.
        let status = unsafe {
            let most = into.len() as i64;
            sys::cudnnBackendGetAttribute(self.0, name, tag, most, &raw mut count, to)
        };
        status.result().named(&format!("{name:?}"))?;
        Ok(count.max(0) as usize)
    }
}

/// Which of the three passes of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Direction {
    Forward,
    Data,
    Filter,
}

/// A convolution: `[images, channels, height, width]` of input, filter and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Geometry {
    pub(crate) input: [usize; 4],
    pub(crate) filter: [usize; 4],
    pub(crate) output: [usize; 4],
    pub(crate) stride: [usize; 2],
    pub(crate) padding: [usize; 2],
}

pub(crate) const INPUT: i64 = 1;
pub(crate) const FILTER: i64 = 2;
pub(crate) const OUTPUT: i64 = 3;

/// A tensor with channels last.
fn tensor(id: i64, data: DataType, size: [usize; 4]) -> Result<Desc, EngineError> {
    let [n, c, h, w] = size.map(|v| v as i64);
    Desc::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
        .set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &[data])?
        .ints(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &[n, c, h, w])?
        .ints(Name::CUDNN_ATTR_TENSOR_STRIDES, &[h * w * c, 1, w * c, c])?
        .ints(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])?
        .ints(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[16])?
        .finish()
}

/// The graph of one convolution pass.
pub(crate) fn graph(
    handle: sys::cudnnHandle_t,
    g: &Geometry,
    direction: Direction,
    data: DataType,
) -> Result<Desc, EngineError> {
    let (x, w) = (tensor(INPUT, data, g.input)?, tensor(FILTER, data, g.filter)?);
    let y = tensor(OUTPUT, data, g.output)?;
    let padding = g.padding.map(|v| v as i64);
    let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
    let float = DataType::CUDNN_DATA_FLOAT;
    let conv = Desc::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
        .set(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &[float])?
        .set(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, Type::CUDNN_TYPE_CONVOLUTION_MODE, &[mode])?
        .ints(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2])?
        .ints(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &padding)?
        .ints(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &padding)?
        .ints(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &[1, 1])?
        .ints(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &g.stride.map(|v| v as i64))?
        .finish()?;
    let (kind, names) = names(direction);
    let operation = Desc::new(kind)?
        .link(names[0], &x)?
        .link(names[1], &w)?
        .link(names[2], &y)?
        .link(names[3], &conv)?
        .set(names[4], Type::CUDNN_TYPE_FLOAT, &[1f32])?
        .set(names[5], Type::CUDNN_TYPE_FLOAT, &[0f32])?
        .finish()?;
    Desc::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
        .set(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle])?
        .link(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operation)?
        .finish()
}

/// The operation and its attributes: input, filter, output, convolution, alpha, beta.
fn names(direction: Direction) -> (Kind, [Name; 6]) {
    match direction {
        Direction::Forward => (
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
            ],
        ),
        Direction::Data => (
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
            ],
        ),
        Direction::Filter => (
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
            ],
        ),
    }
}

/// The lists of engines that cuDNN offers: two guesses of what is fast, and what works at all.
pub(crate) const LISTS: [sys::cudnnBackendHeurMode_t; 3] = [
    sys::cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_A,
    sys::cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_B,
    sys::cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_FALLBACK,
];

/// Engine configurations for a graph, best first by cuDNN's own guess.
pub(crate) fn engines(
    graph: &Desc,
    list: sys::cudnnBackendHeurMode_t,
) -> Result<Vec<Desc>, EngineError> {
    let heuristic = Desc::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
        .link(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)?
        .set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, Type::CUDNN_TYPE_HEUR_MODE, &[list])?
        .finish()?;
    let (name, tag) = (Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR);
    let count = heuristic.get::<sys::cudnnBackendDescriptor_t>(name, tag, &mut [])?;
    let fresh = || Desc::new(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    let mut list: Vec<Desc> = (0..count).map(|_| fresh()).collect::<Result<_, _>>()?;
    let mut raw: Vec<_> = list.iter().map(|d| d.0).collect();
    let got = heuristic.get(name, tag, &mut raw)?;
    list.truncate(got);
    Ok(list)
}

/// What an engine configuration says of itself.
pub(crate) struct About {
    /// The number of its engine.
    pub(crate) number: i64,
    /// Numerical notes.
    pub(crate) notes: Vec<u32>,
    /// Kind and value of every knob.
    pub(crate) knobs: Vec<(i32, i64)>,
}

/// More knobs than any engine has.
const MOST_KNOBS: usize = 32;

fn knobs(engine: &Desc) -> Result<Vec<(i32, i64)>, EngineError> {
    let fresh = || Desc::new(Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    let list: Vec<Desc> = (0..MOST_KNOBS).map(|_| fresh()).collect::<Result<_, _>>()?;
    let mut raw: Vec<_> = list.iter().map(|d| d.0).collect();
    let tag = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
    let count = engine.get(Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, tag, &mut raw)?;
    let read = |knob: &Desc| {
        let (mut kind, mut value) = ([0i32], [0i64]);
        knob.get(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, Type::CUDNN_TYPE_KNOB_TYPE, &mut kind)?;
        knob.get(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, Type::CUDNN_TYPE_INT64, &mut value)?;
        Ok((kind[0], value[0]))
    };
    list.iter().take(count).map(read).collect()
}

pub(crate) fn describe(engine: &Desc) -> Result<About, EngineError> {
    let inner = Desc::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
    let tag = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
    engine.get(Name::CUDNN_ATTR_ENGINECFG_ENGINE, tag, &mut [inner.0])?;
    let mut number = [-1i64];
    inner.get(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, Type::CUDNN_TYPE_INT64, &mut number)?;
    let mut notes = [u32::MAX; 16];
    let tag = Type::CUDNN_TYPE_NUMERICAL_NOTE;
    let count = inner.get(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, tag, &mut notes)?;
    let notes = notes[..count.min(16)].to_vec();
    // An engine without knobs may refuse to list them.
    let knobs = knobs(engine).unwrap_or_default();
    Ok(About { number: number[0], notes, knobs })
}

/// An engine made ready to run, and the workspace it needs.
pub(crate) fn ready(
    handle: sys::cudnnHandle_t,
    engine: &Desc,
) -> Result<(Desc, usize), EngineError> {
    let plan = Desc::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
        .set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle])?
        .link(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine)?
        .finish()?;
    let mut bytes = [0i64];
    let name = Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE;
    plan.get(name, Type::CUDNN_TYPE_INT64, &mut bytes)?;
    Ok((plan, bytes[0].max(0) as usize))
}

/// The addresses of input, filter, output and workspace for a run.
pub(crate) fn pack(places: [u64; 3], workspace: u64) -> Result<Desc, EngineError> {
    let pointers = places.map(|p| p as *mut c_void);
    Desc::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
        .set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, Type::CUDNN_TYPE_VOID_PTR, &pointers)?
        .ints(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &[INPUT, FILTER, OUTPUT])?
        .set(
            Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
            Type::CUDNN_TYPE_VOID_PTR,
            &[workspace as *mut c_void],
        )?
        .finish()
}

/// Puts a run on the stream.
pub(crate) fn execute(
    handle: sys::cudnnHandle_t,
    plan: &Desc,
    pack: &Desc,
) -> Result<(), EngineError> {
    // SAFETY: the plan and the pack are finalized; the caller keeps the buffers behind the
    // addresses alive until the stream has passed this point.
    unsafe { sys::cudnnBackendExecute(handle, plan.0, pack.0) }
        .result()
        .named("cudnnBackendExecute")
}
