//! Matrix products through cuBLASLt.

use std::ffi::c_void;

use cudarc::cublaslt::result;
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as Compute, cublasLtMatmulDescAttributes_t as Attribute,
    cublasLtMatmulPreferenceAttributes_t as Preference, cudaDataType_t as DataType,
};

use super::Precision;
use super::context::Gpu;
use super::dnn::Direction;
use super::error::Named;
use crate::error::EngineError;

/// Workspace that a product may use.
pub(crate) const WORKSPACE: usize = 8 << 20;
/// Partial sums of a split product are added by a second kernel, never in the order of arrival.
const ORDERED_REDUCTIONS: u32 = 2 | 4;

/// `CUBLAS_OP_N` and `CUBLAS_OP_T`: as it lies in memory, or transposed.
const PLAIN: i32 = 0;
const TURNED: i32 = 1;

/// One of the three products of a linear layer, `[rows, inputs] x [outputs, inputs]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Product {
    pub(crate) direction: Direction,
    pub(crate) rows: usize,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) precision: Precision,
    /// Whether the result is f32 whatever the precision.
    pub(crate) wide: bool,
    /// Bytes to which left, right and result are aligned.
    pub(crate) alignment: [u32; 3],
}

/// A product ready to run.
pub(crate) struct Gemm {
    desc: Desc,
    layouts: [Layout; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    pub(crate) workspace: usize,
}

// SAFETY: descriptors are plain host memory of cuBLASLt, used by one thread at a time.
unsafe impl Send for Gemm {}

struct Desc(sys::cublasLtMatmulDesc_t);

impl Drop for Desc {
    fn drop(&mut self) {
        // SAFETY: created by cuBLASLt and not destroyed before.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

struct Layout(sys::cublasLtMatrixLayout_t);

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: created by cuBLASLt and not destroyed before.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

impl Gemm {
    /// Everything is row by row here and column by column there, so each product is transposed:
    /// forward Y' = W X', data dX' = W' dY', filter dW' = X' dY.
    pub(crate) fn new(gpu: &Gpu, p: &Product) -> Result<Self, EngineError> {
        let (rows, inputs, outputs) = (p.rows as u64, p.inputs as u64, p.outputs as u64);
        let (n, t) = (PLAIN, TURNED);
        // Left and right as they lie in memory (column by column), and the result.
        let (left, right, to, operations) = match p.direction {
            Direction::Forward => ((inputs, outputs), (inputs, rows), (outputs, rows), [t, n]),
            Direction::Data => ((inputs, outputs), (outputs, rows), (inputs, rows), [n, n]),
            Direction::Filter => ((inputs, rows), (outputs, rows), (inputs, outputs), [n, t]),
        };
        let (value, compute) = match p.precision {
            Precision::Bf16 => (DataType::CUDA_R_16BF, Compute::CUBLAS_COMPUTE_32F),
            Precision::Tf32 => (DataType::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F_FAST_TF32),
            Precision::F32 => (DataType::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F),
        };
        let result_type = if p.wide { DataType::CUDA_R_32F } else { value };
        let layout = |kind, (rows, columns): (u64, u64)| {
            let made = result::create_matrix_layout(kind, rows, columns, rows as i64);
            made.named("matrix layout").map(Layout)
        };
        let made = result::create_matmul_desc(compute, DataType::CUDA_R_32F);
        let desc = made.named("matmul descriptor").map(Desc)?;
        let layouts = [layout(value, left)?, layout(value, right)?, layout(result_type, to)?];
        let which =
            [Attribute::CUBLASLT_MATMUL_DESC_TRANSA, Attribute::CUBLASLT_MATMUL_DESC_TRANSB];
        for (attribute, operation) in which.into_iter().zip(operations) {
            let from = (&raw const operation).cast::<c_void>();
            // SAFETY: cuBLASLt reads one operation, four bytes, from a valid place.
            unsafe { result::set_matmul_desc_attribute(desc.0, attribute, from, size_of::<i32>()) }
                .named("matmul attribute")?;
        }
        let heuristic = heuristic(gpu, &desc, &layouts, p.alignment)?;
        let workspace = heuristic.workspaceSize;
        Ok(Self { desc, layouts, algorithm: heuristic.algo, workspace })
    }

    /// Puts the product on the stream.
    pub(crate) fn run(&self, gpu: &Gpu, at: [u64; 3], workspace: u64) -> Result<(), EngineError> {
        let (one, zero) = (1f32, 0f32);
        let [left, right, to] = at;
        // SAFETY: the layouts describe the buffers at these addresses, which the plan keeps alive;
        // the workspace has at least the size that the heuristic asked for.
        unsafe {
            result::matmul(
                gpu.blas.0,
                self.desc.0,
                (&raw const one).cast(),
                (&raw const zero).cast(),
                left as *const c_void,
                self.layouts[0].0,
                right as *const c_void,
                self.layouts[1].0,
                to as *const c_void,
                self.layouts[2].0,
                to as *mut c_void,
                self.layouts[2].0,
                &raw const self.algorithm,
                workspace as *mut c_void,
                self.workspace,
                gpu.stream.cu_stream() as sys::cudaStream_t,
            )
        }
        .named("cublasLtMatmul")
    }
}

fn heuristic(
    gpu: &Gpu,
    desc: &Desc,
    layouts: &[Layout; 3],
    alignment: [u32; 3],
) -> Result<sys::cublasLtMatmulHeuristicResult_t, EngineError> {
    let preference = result::create_matmul_pref().named("matmul preference")?;
    let [left, right, to] = alignment;
    let words = [
        (Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, ORDERED_REDUCTIONS),
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, left),
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, right),
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, to),
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, to),
    ];
    let bytes = WORKSPACE;
    // SAFETY: every attribute is read from a valid place of its own size, and the preference is
    // destroyed once.
    let found = unsafe {
        let name = Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let from = (&raw const bytes).cast();
        let mut set = result::set_matmul_pref_attribute(preference, name, from, size_of::<usize>());
        for (name, word) in &words {
            let from = std::ptr::from_ref(word).cast();
            set = set.and_then(|()| {
                result::set_matmul_pref_attribute(preference, *name, from, size_of::<u32>())
            });
        }
        let [a, b, c] = layouts.each_ref().map(|l| l.0);
        let found = set.and_then(|()| {
            result::get_matmul_algo_heuristic(gpu.blas.0, desc.0, a, b, c, c, preference)
        });
        let _ = result::destroy_matmul_pref(preference);
        found
    };
    found.named("cublasLtMatmulAlgoGetHeuristic")
}
