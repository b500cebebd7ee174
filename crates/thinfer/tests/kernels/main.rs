//! The CUDA kernels against the Rust methods, without a GPU: the same text, compiled as C++.
//!
//! With `EXACT=1` the bits must be equal. The fast form is compared with its hardware functions
//! replaced by the library's, so this bounds what its formulas lose, not what the hardware loses.
//! Where there is no C++ compiler the tests say so and pass. Where NVRTC can be loaded, all of them
//! are also compiled for GPUs.

use std::path::Path;
use std::process::Command;

use thinfer::methods::kernels::{
    self, CsgmcmcScalars, CvAdamScalars, Kernel, Rank1Scalars, Scalars, SgdScalars, SghmcScalars,
};
use thinfer::methods::sghmc::{NoiseRule, RhoRule};
use thinfer::methods::{csgmcmc, cv_adam, ivon, rank1, sgd, sghmc};
use thinfer_engine::augment::{self, Augment};
use thinfer_engine::noise::{self, Key, Stream};
use thinfer_engine::{
    Dataset, Draw, Law, Loss, Mixture, NetworkBuilder, Plan, Shape, elementary, joined,
};

/// Kernels that a session on a GPU launches around those of the methods.
const CLIP_SOURCE: &str =
    joined!(noise::CUDA_SOURCE, include_str!("../../../thinfer-engine/src/cuda/kernels/clip.cu"));
const LOWER: Kernel = Kernel {
    source: joined!(
        noise::CUDA_SOURCE,
        include_str!("../../../thinfer-engine/src/cuda/kernels/lower.cu")
    ),
    entry: "lower",
    defines: &[],
};

/// Random channel scales, without the kernels of the way back, whose threads wait for each other.
const VARY_SOURCE: &str = joined!(
    noise::CUDA_SOURCE,
    joined!(
        include_str!("../../../thinfer-engine/src/cuda/kernels/common.cuh"),
        include_str!("../../../thinfer-engine/src/cuda/kernels/vary.cu")
    )
);

/// A length that is no multiple of anything, and more than the test's launch covers in one round.
const N: usize = 3 * 64 * 4 * 3 + 128 + 37;

type Sections = Vec<Vec<u8>>;

/// Compiles `source` after the shim and runs `main` on the sections; `None` without a compiler.
struct Program {
    folder: tempfile::TempDir,
}

/// A clipped gradient.
const FACTOR: f32 = 0.625;

impl Program {
    #[expect(clippy::print_stderr, reason = "a test that skips says why")]
    fn new(source: &str, main: &str, defines: &[&str]) -> Option<Self> {
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        if Command::new(&compiler).arg("--version").output().is_err() {
            eprintln!("skipped: no C++ compiler ({compiler}); install one or set CXX");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernel.cpp");
        std::fs::write(&path, format!("{}\n{source}\n{main}", include_str!("host.h"))).unwrap();
        let mut command = Command::new(compiler);
        command.args(["-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-w"]);
        command.args(defines.iter().map(|d| format!("-D{d}")));
        let out = command.arg("-o").arg(folder.path().join("kernel")).arg(&path).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Some(Self { folder })
    }

    fn run(&self, sections: &Sections) -> Sections {
        let at = |name: &str| self.folder.path().join(name);
        let mut bytes = Vec::new();
        for section in sections {
            bytes.extend((section.len() as u64).to_le_bytes());
            bytes.extend(section);
        }
        std::fs::write(at("in"), bytes).unwrap();
        let program = Command::new(at("kernel")).args([at("in"), at("out")]).status().unwrap();
        assert!(program.success());
        read_sections(&at("out"))
    }
}

fn read_sections(path: &Path) -> Sections {
    let bytes = std::fs::read(path).unwrap();
    let (mut at, mut sections) = (0, Vec::new());
    while at < bytes.len() {
        let len = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        sections.push(bytes[at + 8..at + 8 + len].to_vec());
        at += 8 + len;
    }
    sections
}

fn bytes(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn of_floats(values: &[f32]) -> Vec<u8> {
    bytes(values.iter().map(|v| v.to_bits()))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// The buffers of a chain in the middle of its life.
#[derive(Clone)]
struct Chain {
    weights: Vec<f32>,
    forward: Option<Vec<f32>>,
    gradient: Vec<f32>,
    state: [Vec<f32>; 2],
    marks: Vec<u8>,
    /// Numbers that key the noise; empty where they are the weights' own.
    origin: Vec<u32>,
}

impl Chain {
    fn new() -> Self {
        let draw = |step: u64, scale: f32| {
            let mut values = vec![0.0; N];
            Key::new(77, 0, Stream::Inputs).normals(step, 0, &mut values);
            values.iter().map(|v| v * scale).collect::<Vec<f32>>()
        };
        let state = [draw(2, 0.01), draw(3, 2.0)];
        let marks = (0..N).map(|i| [3, 1, 2, 0, 3, 7, 5, 6, 4][i % 9]).collect();
        let (weights, gradient) = (draw(0, 0.3), draw(1, 0.2));
        Self { weights, forward: None, gradient, state, marks, origin: Vec::new() }
    }

    fn run(&mut self, kernel: Kernel, exact: bool, scalars: &impl Scalars, factor: f32) -> bool {
        let exact = if exact { "EXACT=1" } else { "EXACT=0" };
        let entry = format!("ENTRY={}", kernel.entry);
        let mut defines: Vec<&str> = kernel.defines.to_vec();
        defines.extend([exact, &*entry]);
        defines.extend((kernel.entry == "sghmc").then_some("TAKES_ORIGIN"));
        let main = include_str!("pass.h");
        let Some(program) = Program::new(kernel.source, main, &defines) else { return false };
        // The entry of step 2 is the right one; those before it are wrong.
        let words = scalars.words();
        let table = bytes([vec![0; 2 * words.len()], words].concat());
        let out = program.run(&vec![
            of_floats(&self.weights),
            self.forward.as_deref().map(of_floats).unwrap_or_default(),
            vec![0; 2 * self.weights.len()],
            of_floats(&self.gradient),
            of_floats(&self.state[0]),
            of_floats(&self.state[1]),
            self.marks.clone(),
            table,
            bytes([2]),
            of_floats(&[factor]),
            bytes(self.origin.iter().copied()),
        ]);
        self.weights = floats(&out[0]);
        self.forward = self.forward.as_ref().map(|_| floats(&out[1]));
        self.state = [floats(&out[4]), floats(&out[5])];
        let read = self.forward.as_ref().unwrap_or(&self.weights);
        let low: Vec<u16> = out[2].chunks(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
        let writes = self.forward.is_none()
            || ["cv_adam_draw", "ivon_draw", "mask"].contains(&kernel.entry)
            || kernel.defines.contains(&"FORWARD=1");
        for (low, read) in low.iter().zip(read) {
            let nearest = bf16(*read);
            assert_eq!(*low, if writes { nearest } else { 0 }, "{read}");
        }
        true
    }
}

/// The nearest bf16, ties to even, by distance.
fn bf16(x: f32) -> u16 {
    let down = (x.to_bits() >> 16) as u16;
    let value = |b: u16| f64::from(f32::from_bits(u32::from(b) << 16));
    let (below, above) = (f64::from(x) - value(down), value(down + 1) - f64::from(x));
    let even = down & 1 == 0;
    let take_down = below.abs() < above.abs() || (below.abs() == above.abs() && even);
    if take_down { down } else { down + 1 }
}

/// `size` is the size of the largest term of the sum that makes the value, where that is over 1.
fn assert_close(what: &str, got: &[f32], want: &[f32], exact: bool, size: f32) {
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let close = (got - want).abs() <= 1e-6 * want.abs().max(size);
        let right = if exact { got.to_bits() == want.to_bits() } else { close };
        assert!(right, "{what}[{i}]: {got} is not {want}");
    }
}

fn normals(key: Key, step: u64) -> Vec<f32> {
    let mut out = vec![0.0; N];
    key.normals(step, 0, &mut out);
    out
}

/// A step whose successor needs a carry into the high word.
const STEP: u64 = u32::MAX as u64 | 5 << 32;
const KEY: Key = Key { seed: 0x1234_5678_9abc_def0, chain: 3, stream: Stream::Sampler };

const COEFFS: sghmc::Coeffs = sghmc::Coeffs {
    beta1: 0.1,
    // The step size before was 2.25 times as large.
    memory: 0.1 / 1.5,
    beta2: 1.0,
    dt: 0.3,
    k: 0.05,
    eta: 0.1,
    n: 777.0,
    slab_decay: 5e-4,
    spike_decay: 1e-2,
    noise: NoiseRule::Exact,
    rho: RhoRule::Exact,
    freeze: false,
};

fn check_sghmc(noise: NoiseRule, rho: RhoRule, exact: bool, freeze: bool, k: f32) {
    let coeffs = sghmc::Coeffs { beta2: 1.25, k, noise, rho, freeze, ..COEFFS };
    let mut want = Chain::new();
    let mut got = want.clone();
    let scalars = SghmcScalars { coeffs, key: KEY, step: STEP };
    if !got.run(kernels::sghmc(noise, rho), exact, &scalars, FACTOR) {
        return;
    }
    let [v, r] = &mut want.state;
    let (before, now) = (normals(KEY, STEP), normals(KEY, STEP + 1));
    let gradient = sghmc::Gradient { values: &want.gradient, factor: FACTOR };
    sghmc::step(&coeffs, &mut want.weights, v, r, gradient, &want.marks, &before, &now);
    // As printed the update has a term η/τ, here up to 0.1 e⁸.
    let size = if rho == RhoRule::Printed { 100.0 } else { 1.0 };
    assert_close("rho", &got.state[1], &want.state[1], exact, size);
    assert_close("v", &got.state[0], &want.state[0], exact, 1.0);
    assert_close("w", &got.weights, &want.weights, exact, 1.0);
}

#[test]
fn sghmc_has_the_bits_of_the_cpu() {
    for noise in [NoiseRule::Exact, NoiseRule::Paper] {
        for rho in [RhoRule::Exact, RhoRule::Code, RhoRule::Printed] {
            check_sghmc(noise, rho, true, noise == NoiseRule::Exact, 0.05);
        }
    }
    check_sghmc(NoiseRule::Exact, RhoRule::Exact, true, false, 0.0);
}

#[test]
fn the_fast_form_of_sghmc_is_close() {
    for noise in [NoiseRule::Exact, NoiseRule::Paper] {
        for rho in [RhoRule::Exact, RhoRule::Code, RhoRule::Printed] {
            check_sghmc(noise, rho, false, noise == NoiseRule::Paper, 0.05);
        }
    }
    check_sghmc(NoiseRule::Exact, RhoRule::Exact, false, false, 0.0);
}

/// A smaller network's weights draw the noise that they drew in the larger one.
#[test]
fn weights_of_a_smaller_network_keep_their_noise() {
    let coeffs = sghmc::Coeffs { freeze: true, ..COEFFS };
    let scalars = SghmcScalars { coeffs, key: KEY, step: STEP };
    let kernel = kernels::sghmc(NoiseRule::Exact, RhoRule::Exact);
    let mut whole = Chain::new();
    let origin: Vec<u32> = (0..N as u32).filter(|i| i % 7 < 3).rev().collect();
    let pick = |values: &[f32]| origin.iter().map(|&i| values[i as usize]).collect::<Vec<f32>>();
    let mut part = Chain {
        weights: pick(&whole.weights),
        gradient: pick(&whole.gradient),
        state: [pick(&whole.state[0]), pick(&whole.state[1])],
        marks: origin.iter().map(|&i| whole.marks[i as usize]).collect(),
        forward: None,
        origin: origin.clone(),
    };
    for exact in [true, false] {
        if !whole.run(kernel, exact, &scalars, FACTOR) {
            return;
        }
        part.run(kernel, exact, &scalars, FACTOR);
        assert_eq!(part.weights, pick(&whole.weights));
        assert_eq!(part.state, [pick(&whole.state[0]), pick(&whole.state[1])]);
    }
}

#[test]
fn sghmc_can_write_the_masked_weights_in_the_same_pass() {
    let coeffs = COEFFS;
    let scalars = SghmcScalars { coeffs, key: KEY, step: STEP };
    let exact = kernels::sghmc(NoiseRule::Exact, RhoRule::Exact);
    let fused = Kernel { defines: &["FORWARD=1"], ..exact };
    let mut apart = Chain { forward: Some(vec![9.0; N]), ..Chain::new() };
    if !apart.run(exact, true, &scalars, 1.0) || !apart.run(kernels::MASK, true, &scalars, 1.0) {
        return;
    }
    let masked = apart.weights.iter().zip(&apart.marks);
    let masked: Vec<f32> = masked.map(|(w, m)| if m & 1 == 1 { *w } else { 0.0 }).collect();
    assert_eq!(apart.forward.as_deref(), Some(&masked[..]));
    let mut together = Chain { forward: Some(vec![9.0; N]), ..Chain::new() };
    assert!(together.run(fused, true, &scalars, 1.0));
    assert_eq!(together.weights, apart.weights);
    assert_eq!(together.forward, apart.forward);
    apart.forward = None;
    apart.run(LOWER, true, &scalars, 1.0);
}

/// Pairs of location and pre-scale begin at odd and even places, at the end of a group of four and
/// at the end of the buffer.
#[test]
fn rank1_has_the_bits_of_the_cpu() {
    let sgd = sgd::Coeffs { momentum: 0.9, decay: 5e-4, rate: 0.1, nesterov: true };
    for law in [Law::Gaussian, Law::Cauchy] {
        let coeffs = rank1::Coeffs { sgd, kl: 1e-3, prior: 0.1, law };
        let mut want = Chain::new();
        let pieces = [(4, 6), (101, 40), (N - 3, 2), (N - 102, 98)];
        want.marks.fill(3);
        for (offset, len) in pieces {
            for at in (offset..offset + len).step_by(2) {
                (want.marks[at], want.marks[at + 1]) = (3 | rank1::LOCATION, 3 | rank1::PRE_SCALE);
                want.weights[at + 1] -= 3.0;
            }
        }
        let start = want.clone();
        sgd::step(&sgd, &mut want.weights, &mut want.state[0], &want.gradient);
        for (offset, len) in pieces {
            let own = offset..offset + len;
            let pairs = start.weights[own.clone()].chunks_exact(2);
            let pulls: Vec<f32> =
                pairs.flat_map(|pair| rank1::pull(&coeffs, pair[0], pair[1])).collect();
            want.weights[own.clone()].copy_from_slice(&start.weights[own.clone()]);
            want.state[0][own.clone()].copy_from_slice(&start.state[0][own.clone()]);
            let (w, buf) = (&mut want.weights[own.clone()], &mut want.state[0][own.clone()]);
            rank1::step_random(&coeffs, w, buf, &want.gradient[own], &pulls);
        }
        for exact in [true, false] {
            let mut got = start.clone();
            if !got.run(kernels::rank1(law), exact, &Rank1Scalars { coeffs }, 1.0) {
                return;
            }
            assert_close("momentum", &got.state[0], &want.state[0], exact, 1.0);
            assert_close("w", &got.weights, &want.weights, exact, 1.0);
        }
    }
}

/// Every row and channel gets the scale that the CPU gives it, for a member in a prediction and for
/// all members in training.
#[test]
fn random_scales_have_the_bits_of_the_cpu() {
    const STEP: u64 = u32::MAX as u64 - 1;
    let (rows, pixels, channels, members) = (10, 3, 16, 5);
    let random = |step: u64, n: usize| {
        let mut values = vec![0.0; n];
        Key::new(4, 0, Stream::Inputs).normals(step, 0, &mut values);
        values
    };
    for (law, define) in [(Law::Gaussian, "GAUSSIAN"), (Law::Cauchy, "CAUCHY")] {
        let mixture = Mixture { members, law, draws: 1 };
        let mut b = NetworkBuilder::image(Shape { height: 1, width: pixels, channels });
        let at = b.vary("a", b.input(), mixture, true).unwrap();
        let network = b.finish(at, Loss::gaussian(1.0)).unwrap();
        let weights = random(0, network.params().len());
        let inputs = random(1, rows * pixels * channels);
        let data = Dataset::new(pixels * channels, 1, inputs.clone(), Vec::new()).unwrap();
        let draw = Draw { key: KEY, step: STEP, member: 3, first_row: 70 };
        let predicted = |draw: Draw| {
            let mut plan = Plan::new(&network, rows).unwrap();
            plan.set_draw(draw);
            let mut out = vec![0.0; inputs.len()];
            plan.forward(&weights, &[], &data, 0..rows, &mut out).unwrap();
            out
        };
        // The step of a prediction counts batches, that of training steps.
        let at = 2;
        let all = Draw { first_row: 70 + at * rows, ..draw };
        let of_members: Vec<Vec<f32>> = (0..members)
            .map(|member| {
                predicted(Draw { key: KEY, step: STEP + at as u64, member, first_row: 0 })
            })
            .collect();
        let width = pixels * channels;
        let trained: Vec<f32> =
            (0..inputs.len()).map(|i| of_members[i / width % members][i]).collect();
        for (training, want) in [(false, predicted(all)), (true, trained)] {
            let mut defines = vec!["EXACT=1", "V=8", define];
            defines.extend(training.then_some("TRAIN"));
            let main = include_str!("vary.h");
            let Some(program) = Program::new(VARY_SOURCE, main, &defines) else { return };
            let sizes = [rows, pixels, channels, channels, members, 0, channels];
            let (posterior, bias) = weights.split_at(members * channels * 2);
            let out = program.run(&vec![
                of_floats(posterior),
                bytes(draw.kernel_words()),
                bytes([at as u32]),
                vec![0; 4 * rows * channels],
                vec![0; 4 * rows * channels],
                bytes(sizes.map(|size| size as u32)),
                of_floats(&inputs),
                vec![0; 4 * inputs.len()],
                of_floats(bias),
            ]);
            assert_close("y", &floats(&out[7]), &want, true, 1.0);
        }
    }
}

#[test]
fn cv_adam_has_the_bits_of_the_cpu() {
    let coeffs = cv_adam::Coeffs {
        beta1: 0.1,
        beta2: 1.25,
        rate: 0.09,
        alpha: 0.2,
        eta: 0.1,
        n: 777.0,
        decay: 5e-4,
    };
    let scalars = CvAdamScalars { coeffs, key: KEY, step: STEP };
    for exact in [true, false] {
        let mut want = Chain { forward: Some(vec![0.0; N]), ..Chain::new() };
        let mut got = want.clone();
        if !got.run(kernels::CV_ADAM_DRAW, exact, &scalars, 1.0) {
            return;
        }
        let eps = normals(KEY, STEP);
        let drawn: Vec<f32> = (0..N)
            .map(|i| {
                let tau = elementary::sigmoid(want.state[1][i]);
                want.weights[i] + coeffs.alpha * tau * eps[i]
            })
            .collect();
        assert_close("forward", got.forward.as_ref().unwrap(), &drawn, exact, 1.0);
        assert!(got.run(kernels::CV_ADAM, exact, &scalars, 1.0));
        let [m, rho] = &mut want.state;
        cv_adam::step(&coeffs, &mut want.weights, m, rho, &want.gradient, &eps);
        assert_close("m", &got.state[0], &want.state[0], exact, 1.0);
        assert_close("rho", &got.state[1], &want.state[1], exact, 1.0);
        assert_close("mu", &got.weights, &want.weights, exact, 1.0);
    }
}

#[test]
fn ivon_has_the_bits_of_the_cpu() {
    let coeffs = ivon::Coeffs {
        k: 0.05,
        over_k: 20.0,
        beta1: 0.9,
        share1: 0.1,
        share2: 1e-2,
        unbias: 1.7,
        rate: 0.09,
        decay: 5e-4,
    };
    let scalars = ivon::Step { coeffs, key: KEY, step: STEP };
    for exact in [true, false] {
        let mut want = Chain { forward: Some(vec![0.0; N]), ..Chain::new() };
        // A curvature is positive.
        want.state[1].iter_mut().for_each(|h| *h = 0.1 + h.abs());
        let mut got = want.clone();
        if !got.run(ivon::DRAW, exact, &scalars, 1.0) {
            return;
        }
        let eps = normals(KEY, STEP);
        let drawn: Vec<f32> = (0..N)
            .map(|i| ivon::draw(&coeffs, want.weights[i], want.state[1][i], eps[i]))
            .collect();
        assert_close("forward", got.forward.as_ref().unwrap(), &drawn, exact, 1.0);
        assert!(got.run(ivon::UPDATE, exact, &scalars, 1.0));
        let [g, h] = &mut want.state;
        ivon::step(&coeffs, &mut want.weights, g, h, &want.gradient, &eps);
        assert_close("g", &got.state[0], &want.state[0], exact, 1.0);
        assert_close("h", &got.state[1], &want.state[1], exact, 1.0);
        assert_close("m", &got.weights, &want.weights, exact, 1.0);
    }
}

#[test]
fn sgd_has_the_bits_of_the_cpu() {
    use sgd::Pruned;
    let (keeps, rests) = (Some(Pruned::KeepsMomentum), Some(Pruned::Rests));
    for (pruned, nesterov) in [(None, false), (None, true), (keeps, true), (rests, false)] {
        let coeffs = sgd::Coeffs { momentum: 0.9, decay: 5e-4, rate: 0.1, nesterov };
        let scalars = SgdScalars { coeffs, pruned };
        let kernel = if pruned.is_some() { kernels::SGD_MASKED } else { kernels::SGD };
        for exact in [true, false] {
            let mut want = Chain::new();
            let mut got = want.clone();
            if !got.run(kernel, exact, &scalars, 1.0) {
                return;
            }
            let (w, buf) = (&mut want.weights, &mut want.state[0]);
            match pruned {
                None => sgd::step(&coeffs, w, buf, &want.gradient),
                Some(rule) => {
                    sgd::step_masked(&coeffs, rule, w, buf, &want.gradient, &want.marks);
                }
            }
            assert_close("buf", &got.state[0], &want.state[0], exact, 1.0);
            assert_close("w", &got.weights, &want.weights, exact, 1.0);
        }
    }
}

#[test]
fn csgmcmc_has_the_bits_of_the_cpu() {
    for (momentum, noise) in [(0.0, 0.05), (0.1, 0.05), (0.9, 0.0)] {
        let coeffs = csgmcmc::Coeffs { momentum, rate: 0.3, decay: 5e-4, noise };
        let scalars = CsgmcmcScalars { coeffs, key: KEY, step: STEP };
        for exact in [true, false] {
            let mut want = Chain::new();
            let mut got = want.clone();
            if !got.run(kernels::csgmcmc(momentum > 0.0), exact, &scalars, FACTOR) {
                return;
            }
            let eps = if noise > 0.0 { normals(KEY, STEP) } else { vec![0.0; N] };
            let u = if momentum > 0.0 { &mut want.state[0][..] } else { &mut [][..] };
            csgmcmc::step(&coeffs, &mut want.weights, u, &want.gradient, FACTOR, &eps);
            assert_close("u", &got.state[0], &want.state[0], exact, 1.0);
            assert_close("w", &got.weights, &want.weights, exact, 1.0);
        }
    }
}

#[test]
fn gathered_images_are_those_of_the_cpu() {
    let shape = Shape { height: 6, width: 5, channels: 3 };
    let (rows, batch, out_channels) = (40u32, 7usize, 4usize);
    let (mean, sd) = ([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]);
    let augment = Augment::new(shape, 2, true, &mean, &sd).unwrap();
    let images: Vec<u8> = (0..rows as usize * shape.len()).map(|i| (i * 31 % 251) as u8).collect();
    let order = KEY.permutation(0, rows as usize);
    let epoch = 4;
    for augment in [augment.clone(), augment.without_chance()] {
        let main = include_str!("gather.h");
        let Some(program) = Program::new(augment::CUDA_SOURCE, main, &["EXACT=1"]) else { return };
        let key = Key { stream: Stream::Augment, ..KEY };
        let out = program.run(&vec![
            images.clone(),
            bytes((0..rows).map(|r| r % 10)),
            bytes(order.iter().copied()),
            bytes([2]),
            bytes(key.kernel_words(epoch)),
            vec![255; 4 * batch * 30 * out_channels],
            vec![0; 4 * batch],
            bytes(augment.kernel_words(batch, out_channels)),
        ]);
        let (got, targets) = (floats(&out[5]), &out[6]);
        for slot in 0..batch {
            let row = order[2 * batch + slot];
            assert_eq!(targets[4 * slot], (row % 10) as u8);
            let mut want = vec![0.0; shape.len()];
            let from = row as usize * shape.len();
            let image = &images[from..from + shape.len()];
            augment.image(image, augment.choice(KEY, epoch, row), &mut want).unwrap();
            for pixel in 0..30 {
                let got = &got[(slot * 30 + pixel) * out_channels..][..out_channels];
                assert_eq!(got[..3], want[3 * pixel..3 * pixel + 3], "row {row} pixel {pixel}");
                assert_eq!(got[3].to_bits(), 0);
            }
        }
    }
}

#[test]
fn rows_of_a_table_are_gathered() {
    let (rows, batch, columns) = (30u32, 8usize, 5usize);
    let inputs: Vec<f32> = (0..rows * 5).map(|i| i as f32).collect();
    let outcomes: Vec<f32> = (0..rows * 2).map(|i| -(i as f32)).collect();
    let order = KEY.permutation(1, rows as usize);
    let main = include_str!("table.h");
    let Some(program) = Program::new(augment::CUDA_SOURCE, main, &[]) else { return };
    let out = program.run(&vec![
        of_floats(&inputs),
        of_floats(&outcomes),
        bytes(order.iter().copied()),
        bytes([1]),
        vec![0; 4 * batch * columns],
        vec![0; 4 * batch * 2],
        bytes([8, 5, 2]),
    ]);
    for (slot, &row) in order[batch..2 * batch].iter().enumerate() {
        let row = row as usize;
        assert_eq!(floats(&out[4])[5 * slot..5 * slot + 5], inputs[5 * row..5 * row + 5]);
        assert_eq!(floats(&out[5])[2 * slot..2 * slot + 2], outcomes[2 * row..2 * row + 2]);
    }
}

#[test]
fn long_gradients_are_clipped_to_the_limit() {
    let state = Chain::new();
    let live = state.gradient.iter().zip(&state.marks).filter(|(_, mark)| **mark & 5 == 1);
    let norm = live.map(|(g, _)| f64::from(*g).powi(2)).sum::<f64>().sqrt();
    let Some(program) = Program::new(CLIP_SOURCE, include_str!("clip.h"), &["THREADS=1"]) else {
        return;
    };
    for (most, clipped) in [(norm / 3.0, 5u32), (norm * 1.001, 4)] {
        let out = program.run(&vec![
            of_floats(&state.gradient),
            state.marks.clone(),
            vec![0; 8 * 7],
            most.to_le_bytes().to_vec(),
            of_floats(&[0.0]),
            bytes([4]),
        ]);
        let want = (most / norm).min(1.0) as f32;
        assert!((floats(&out[4])[0] - want).abs() < 1e-7, "{} is not {want}", floats(&out[4])[0]);
        assert_eq!(out[5], clipped.to_le_bytes());
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test must say so")]
fn every_kernel_of_a_method_compiles_for_ampere_and_hopper() {
    for kernel in kernels::all() {
        for arch in ["sm_80", "sm_90"] {
            let Some(compiled) = thinfer_engine::cuda::try_compile(&kernel, arch) else {
                eprintln!(
                    "skipped: kernels of the methods, libnvrtc cannot be loaded; put its folder on LD_LIBRARY_PATH"
                );
                return;
            };
            let told = compiled.map_err(|e| e.to_string());
            assert_eq!(told, Ok(()), "{} {:?} for {arch}", kernel.entry, kernel.defines);
        }
    }
}
