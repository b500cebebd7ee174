//! Faults: what a GPU was given last, for the message.

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

use super::context::{Gpu, locked};
use crate::error::EngineError;

impl Gpu {
    /// Keeps in mind what is put on the stream next.
    pub(super) fn launching(&self, what: String) {
        *locked(&self.launched) = what;
    }

    /// The error as it is, or what the GPU was given last where that made it fault: the call that
    /// notices a fault is not the one that made it.
    pub(super) fn explain(&self, error: EngineError) -> EngineError {
        match self.stream.synchronize() {
            Err(DriverError(code)) if is_fault(code) => {
                let launched = locked(&self.launched).clone();
                EngineError::Fault { problem: format!("{code:?}"), launched }
            }
            _ => error,
        }
    }
}

/// Whether a kernel has failed, after which nothing more can be done in this process.
fn is_fault(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_memory_is_no_fault() {
        assert!(is_fault(CUresult::CUDA_ERROR_LAUNCH_FAILED));
        assert!(!is_fault(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        assert!(!is_fault(CUresult::CUDA_ERROR_NOT_READY));
    }

    #[test]
    fn the_message_says_what_ran_and_what_to_do() {
        let launched = "steps 0 to 782 of an epoch, 64 examples each".to_owned();
        let problem = "CUDA_ERROR_LAUNCH_FAILED".to_owned();
        let text = EngineError::Fault { problem, launched }.to_string();
        assert!(text.contains("steps 0 to 782") && text.contains("--resume"), "{text}");
    }
}
