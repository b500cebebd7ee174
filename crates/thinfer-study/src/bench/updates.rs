//! The update of every method by itself, beside what the memory of the device can do.

use std::sync::Arc;

use serde::Serialize;
use thinfer_core::device::Device;
use thinfer_core::methods::{Method, Rates, Tick, initialize};
use thinfer_core::model::rank1;
use thinfer_data::Result;
use thinfer_data::memory::available_memory;
use thinfer_engine::augment::Augment;
use thinfer_engine::cuda::{self, Gpu, PlanOptions, Precision, Session, Source, StepCalls};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Call, Law, Mixture, Network};
use thinfer_run::config::{Config, MethodKind};
use thinfer_run::experiment::{Problem, ProblemInputs, build_method};
use thinfer_run::registry::METHODS;

use super::{Options, cpu_copy, memory, middle, network_of, repeated};
use crate::machine::Cpu;

/// One method.
#[derive(Clone, Debug, Serialize)]
pub struct Update {
    /// Its name in a configuration.
    pub method: &'static str,
    /// The kernels of a step.
    pub kernels: Vec<&'static str>,
    /// Bytes that a step reads and writes for a weight.
    pub bytes_per_weight: usize,
    /// One step: what the network reads is written, the gradient is consumed.
    pub milliseconds: f64,
    /// Bytes a second, as a part of a copy's.
    pub of_copy: f64,
}

/// All methods.
#[derive(Clone, Debug, Serialize)]
pub struct Updates {
    /// The version of the program.
    pub thinfer: &'static str,
    /// The device as the command line names it.
    pub device: String,
    /// What it is.
    pub device_name: String,
    /// The network.
    pub model: String,
    /// Its parameters.
    pub parameters: usize,
    /// The arithmetic.
    pub precision: Precision,
    /// Bytes read and written a second by a copy.
    pub copy_bytes_per_second: f64,
    /// The methods.
    pub updates: Vec<Update>,
}

/// Times the update of every method that has kernels, on the weights of a network.
pub fn updates(device: Device, options: &Options) -> Result<Updates> {
    let network = network_of(options)?;
    // A GPU gets a batch, whose bytes lie in the memory of the machine, too.
    let (batch, an_image) = match device {
        Device::Cpu => (0, 0),
        Device::Cuda(_) => (options.batch, network.input_len() as u64 + 8),
    };
    let of_batch = |batch: usize| an_image.saturating_mul(batch as u64);
    memory::check(&network, batch, of_batch, available_memory())?;
    let gpu = match device {
        Device::Cpu => None,
        Device::Cuda(index) => Some(Gpu::open(index)?),
    };
    let copy = match &gpu {
        Some(gpu) => cuda::copy_bandwidth(gpu)?,
        None => cpu_copy()?,
    };
    let mut all = Vec::new();
    let mixture = Mixture { members: 4, law: Law::Gaussian, draws: 1 };
    let shared = rank1(&network, mixture)?;
    for entry in METHODS.iter().filter(|entry| entry.kind.has_kernels()) {
        let network = if entry.kind.name() == "rank1" { &shared } else { &network };
        let mut ready = Ready::new(entry.kind, network, options.precision)?;
        let milliseconds = match &gpu {
            Some(gpu) => on_gpu(gpu, network, &ready, options)?,
            None => on_cpu(&mut ready)?,
        };
        let rate = (ready.bytes * network.params().len()) as f64 / (1e-3 * milliseconds);
        all.push(Update {
            method: entry.kind.name(),
            kernels: ready.passes().map(|call| call.kernel.entry).collect(),
            bytes_per_weight: ready.bytes,
            milliseconds,
            of_copy: rate / copy,
        });
    }
    Ok(Updates {
        thinfer: env!("CARGO_PKG_VERSION"),
        device: device.to_string(),
        device_name: gpu.map_or_else(|| Cpu::here().name, |gpu| gpu.name().to_owned()),
        model: options.model.clone(),
        parameters: network.params().len(),
        precision: options.precision,
        copy_bytes_per_second: copy,
        updates: all,
    })
}

/// A step in the middle of a run, with noise where the method has any.
fn tick(step: u64) -> Tick {
    let rates = Rates {
        step_size: 1e-6,
        step_size_before: 1e-6,
        temperature: 1e-3,
        eta: 1e-3,
        decay_factor: 1.0,
    };
    // The last epoch of a run of 200, in which cyclical samplers have noise.
    Tick { step, epoch: 199, rates }
}

/// A method with its buffers, and one step of it.
struct Ready {
    method: Arc<dyn Method>,
    arena: Arena,
    calls: StepCalls,
    /// Bytes that the step reads and writes for a weight.
    bytes: usize,
}

impl Ready {
    fn new(kind: MethodKind, network: &Network, precision: Precision) -> Result<Self> {
        let (shape, classes) = (network.nodes()[0].shape, network.output_len());
        let inputs = ProblemInputs::Image { shape, classes };
        let problem = Problem { train_rows: 50_000, fingerprint: 0, inputs };
        let settings = ["data.kind=cifar10".to_owned(), format!("method.kind={}", kind.name())];
        let method = build_method(&Config::parse("", &settings)?, problem, network, 0)?;
        let mut arena = Arena::new(network, method.state_buffers());
        initialize(&mut arena, network.loss(), 1, 0)?;
        method.start(&mut arena, Key::new(1, 0, Stream::Sampler))?;
        let before = arena.record(|arena| method.materialize(arena, tick(0)))?;
        let after = arena.record(|arena| method.update(arena, tick(0)))?;
        let mut ready = Self { method, arena, calls: StepCalls { before, after }, bytes: 0 };
        let low = |call| precision == Precision::Bf16 && writes_low(call, &ready.arena);
        ready.bytes = ready.passes().map(|call| bytes_of(call, low(call))).sum();
        Ok(ready)
    }

    fn passes(&self) -> impl Iterator<Item = &Call> {
        self.calls.before.iter().chain(&self.calls.after)
    }
}

/// Whether a pass writes the bf16 copy: an update where the network reads the weights themselves,
/// another pass always.
fn writes_low(call: &Call, arena: &Arena) -> bool {
    !arena.has_forward() || matches!(call.kernel.entry, "mask" | "cv_adam_draw" | "ivon_draw")
}

/// Bytes that a pass reads and writes for a weight: 4 for each number, 1 for marks, 2 for the copy.
fn bytes_of(call: &Call, low: bool) -> usize {
    let numbers = match call.kernel.entry {
        "mask" => 2 * 4 + 1,
        "cv_adam_draw" | "ivon_draw" => 3 * 4,
        // Gradient, weights both ways, and each state both ways.
        "csgmcmc" if call.kernel.defines.contains(&"MOMENTUM=0") => 3 * 4,
        "sgd" | "csgmcmc" => 5 * 4,
        "sgd_masked" | "rank1" => 5 * 4 + 1,
        "cv_adam" | "ivon" => 7 * 4,
        _ => 7 * 4 + 1,
    };
    numbers + if low { 2 } else { 0 }
}

fn on_cpu(ready: &mut Ready) -> Result<f64> {
    let Ready { method, arena, .. } = ready;
    let mut gradient = vec![0.0; arena.len()];
    Key::new(1, 0, Stream::Inputs).normals(0, 0, &mut gradient);
    arena.set_gradient(&gradient)?;
    let mut step = 0;
    let times = repeated(|| {
        step += 1;
        method.materialize(arena, tick(step));
        method.update(arena, tick(step));
        Ok(())
    })?;
    Ok(middle(&times))
}

fn on_gpu(gpu: &Arc<Gpu>, network: &Network, ready: &Ready, options: &Options) -> Result<f64> {
    let Ready { arena, calls, .. } = ready;
    let (shape, batch) = (network.nodes()[0].shape, options.batch);
    let key = Key::new(1, 0, Stream::Inputs);
    let bytes: Vec<u8> = (0..batch * shape.len()).map(|i| key.below(0, i, 256) as u8).collect();
    let classes: Vec<u32> = (0..batch).map(|row| (row % network.output_len()) as u32).collect();
    let channels = vec![0.5; shape.channels];
    let augment = Augment::new(shape, 0, false, &channels, &channels)?;
    let source = Source::Images { bytes: &bytes, classes: &classes, augment: &augment };
    let &Options { precision, deterministic, .. } = options;
    let plan = PlanOptions { batch, precision, deterministic, training: true, hasty: false };
    let mut session = Session::new(gpu, network, arena, source, plan)?;
    session.push(arena)?;
    let order = Key::new(1, 0, Stream::Shuffle).permutation(0, batch);
    let augmenting = Key::new(1, 0, Stream::Augment).kernel_words(0);
    session.run(&order, 0, std::slice::from_ref(calls), augmenting)?;
    Ok(session.time_parts(calls)?.update)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::usual_input;
    use thinfer_core::model::image_network;

    #[test]
    fn bytes_are_those_of_the_passes() {
        let (shape, classes) = usual_input("lenet");
        let network = image_network("lenet", shape, classes).unwrap();
        let bytes = |precision: Precision| -> Vec<(&str, usize)> {
            let of = |kind: MethodKind| Ready::new(kind, &network, precision).unwrap().bytes;
            let timed = METHODS.iter().filter(|entry| entry.kind.has_kernels());
            timed.map(|entry| (entry.kind.name(), of(entry.kind))).collect()
        };
        let want = [
            ("em-mcmc", 29),
            ("sghmc", 29),
            ("cv-adam", 40),
            ("sgd", 20),
            ("csgld", 12),
            ("csghmc", 20),
            ("dpf-lin", 29),
            ("sm", 21),
            ("dsr", 21),
            ("rank1", 21),
            ("ivon", 40),
        ];
        assert_eq!(bytes(Precision::F32), want);
        // The copy is written once a step, whichever pass does it.
        assert_eq!(bytes(Precision::Bf16), want.map(|(method, bytes)| (method, bytes + 2)));
    }
}
