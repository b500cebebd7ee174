use std::collections::BTreeSet;

use rayon::prelude::*;

use super::context::HOPPER;
use super::lower::lower;
use super::networks::cases;
use super::nvrtc::{self, source};
use super::step::{Place, Program, Space, Step};
use super::{PlanOptions, Precision};
use crate::network::NetworkBuilder;
use crate::ops::loss::{Loss, Scale};

const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::Tf32, Precision::Bf16];

fn options(batch: usize, precision: Precision, training: bool) -> PlanOptions {
    PlanOptions { batch, precision, deterministic: true, training, hasty: false }
}

fn entries(steps: &[Step]) -> Vec<&'static str> {
    let name = |s: &Step| match s {
        Step::Kernel(launch) | Step::Beside(_, launch) => launch.entry,
        Step::Conv(..) | Step::Filter(..) => "conv",
        Step::Join(_) => "join",
        Step::Product(..) => "product",
    };
    steps.iter().map(name).collect()
}

fn lowered(name: &str, training: bool) -> Program {
    let case = cases().unwrap().into_iter().find(|c| c.name == name).unwrap();
    lower(&case.network, options(case.batch, Precision::Bf16, training), 132).unwrap()
}

#[test]
fn a_residual_network_runs_in_few_launches() {
    let program = lowered("residual network", true);
    let count = |name: &str| entries(&program.training).iter().filter(|e| **e == name).count();
    // Norms: 1 + 2 + 3 + 2; the shortcut's has its statistics but shares a pass.
    assert_eq!(count("norm_forward"), 7);
    assert_eq!(count("norm_stats"), 1);
    assert_eq!(count("norm_backward"), 8);
    assert_eq!(count("norm_apply") + count("norm_reduce") + count("norm_dx"), 0);
    // Forward, filter, and data for all but the first.
    assert_eq!(count("conv"), 8 + 8 + 7);
    // The images have three channels: their windows are read as 27.
    assert_eq!(count("unfold"), 1);
    // Nothing is added by a kernel of its own.
    assert_eq!(count("sum_two"), 0);
    assert_eq!(count("curve_forward") + count("curve_backward"), 0);
    // Each filter gradient is widened beside the main stream, unless a kernel of our own makes it,
    // and the main stream waits for the last at the end.
    assert_eq!(count("unpack_gradients"), 8);
    assert!(matches!(program.training.last(), Some(Step::Join(7))));
}

#[test]
fn a_wide_residual_network_makes_its_sums_in_the_norms() {
    let program = lowered("wide residual network", true);
    let count = |name: &str| entries(&program.training).iter().filter(|e| **e == name).count();
    assert_eq!(count("sum_two"), 0);
    assert_eq!(entries(&program.inference).iter().filter(|e| **e == "sum_two").count(), 3);
}

/// Kernels of training and of inference that are compiled with a define; there are no copies of
/// channels and no sums besides.
fn compiled_with(case: &str, define: &str) -> (usize, usize) {
    let program = lowered(case, true);
    let count = |steps: &[Step]| {
        assert!(!entries(steps).contains(&"choose") && !entries(steps).contains(&"sum_two"));
        let has = |s: &&Step| matches!(s, Step::Kernel(l) if l.defines.contains(&define));
        steps.iter().filter(has).count()
    };
    (count(&program.training), count(&program.inference))
}

/// Sums with narrower streams are made by the norms, and what comes back is as narrow.
#[test]
fn a_stream_that_grows_is_added_by_the_norms() {
    assert_eq!(compiled_with("a stream that grows", "PART"), (4, 2));
}

/// The norms of a branch put it to its channels of the sum, and pass the others on.
#[test]
fn what_adds_to_the_last_channels_is_as_narrow_as_they_are() {
    let case = "a stream of which the last channels are added to";
    assert_eq!((compiled_with(case, "FROM"), compiled_with(case, "PART")), ((4, 2), (2, 1)));
    let case = "last channels of shortcuts";
    assert_eq!((compiled_with(case, "FROM"), compiled_with(case, "RES=2")), ((4, 2), (2, 2)));
}

/// Kernels of norms read eight channels at once.
#[test]
fn odd_channels_are_put_to_their_places_by_copies() {
    for case in ["a stream that grows by odd channels", "odd last channels of a stream"] {
        let program = lowered(case, true);
        assert!(
            entries(&program.training)
                .iter()
                .any(|entry| ["choose", "join_forward"].contains(entry))
        );
        let part = |s: &Step| matches!(s, Step::Kernel(l) if l.defines.iter().any(|d| ["PART", "FROM"].contains(d)));
        assert!(!program.training.iter().any(part), "{case}");
    }
}

/// Neither filters nor data of what is held in front, no filters of what is held behind it.
#[test]
fn the_way_back_leaves_out_what_is_held() {
    let count = |name: &str, entry: &str| {
        entries(&lowered(name, true).training).iter().filter(|e| **e == entry).count()
    };
    let frozen = "residual network with a frozen front";
    // Forward 8; of filters layer2.0.conv2 and layer2.1.conv2; through layer2.1.conv1 and .conv2.
    assert_eq!(count(frozen, "conv"), 8 + 2 + 2);
    assert_eq!(count(frozen, "unpack_gradients"), 2);
    // Of the norms the last of layer2.0 and both of layer2.1; the first of them passes nothing on
    // to what is held on both of its sides.
    assert_eq!(count(frozen, "norm_backward") + count(frozen, "norm_reduce"), 3);
    // Forward, one filter; fc3 and fc1 are trained, and data goes through fc3 and fc2.
    assert_eq!(count("lenet with a frozen front", "conv"), 2);
    assert_eq!(count("lenet with a frozen front", "product"), 3 + 2 + 2);
    assert_eq!(count("lenet with a frozen front", "max_backward"), 0);
}

#[test]
fn inference_alone_needs_less_memory() {
    for name in ["residual network", "wide residual network", "bottleneck and max pool"] {
        let (with, without) = (lowered(name, true), lowered(name, false));
        assert!(without.training.is_empty());
        assert!(without.arena < with.arena / 2, "{name}: {} {}", without.arena, with.arena);
    }
}

/// Every place that a step names lies inside its buffer.
#[test]
fn places_are_inside_their_buffers() {
    for case in cases().unwrap() {
        for precision in PRECISIONS {
            let p = lower(&case.network, options(case.batch, precision, true), 132).unwrap();
            for step in p.training.iter().chain(&p.inference) {
                let places = match step {
                    Step::Conv(problem, places) | Step::Filter(problem, places, _) => {
                        for (place, bytes) in places.iter().zip(problem.bytes()) {
                            let size = match place.space {
                                Space::Arena => p.arena,
                                Space::Packed => p.packed,
                                Space::PackedGradient => p.packed_gradient,
                                _ => continue,
                            };
                            assert!(place.offset + bytes <= size, "{} {place:?}", case.name);
                            assert!(place.offset.is_multiple_of(16));
                        }
                        places.to_vec()
                    }
                    Step::Product(_, places) => places.to_vec(),
                    Step::Kernel(_) | Step::Join(_) | Step::Beside(..) => continue,
                };
                assert!(places.iter().all(|p| p.space != Space::Nothing), "{}", case.name);
            }
        }
    }
}

/// A filter gradient names its weights in the flat gradient, and is moved there where a library
/// makes it elsewhere.
#[test]
fn filter_gradients_reach_the_flat_gradient() {
    for case in cases().unwrap() {
        for precision in PRECISIONS {
            let p = lower(&case.network, options(case.batch, precision, true), 132).unwrap();
            let mut number = 0;
            for (at, step) in p.training.iter().enumerate() {
                let Step::Filter(problem, [_, dw, _], flat) = step else { continue };
                let [outputs, _, high, wide] = problem.geometry.filter;
                let len = outputs * high * wide * problem.stored;
                let own = |offset: usize| Place::new(Space::Gradient, 4 * offset) == *flat;
                let param = case.network.params().iter().find(|param| own(param.offset));
                assert!(param.is_some_and(|param| param.len() == len), "{}", case.name);
                let next = p.training.get(at + 1);
                let moved = matches!(next, Some(Step::Beside(beside, _)) if *beside == number);
                assert_eq!(moved, dw != flat, "{}", case.name);
                assert!(moved || precision != Precision::Bf16, "{}", case.name);
                number += 1;
            }
        }
    }
}

/// Every kernel that any case uses, and the plain ones that stand in for the libraries.
#[test]
#[expect(clippy::print_stderr, reason = "a skipped test must say so")]
fn every_kernel_compiles_for_ampere_and_hopper() {
    let Some((major, minor)) = nvrtc::version() else {
        eprintln!(
            "skipped: kernels of the engine, libnvrtc cannot be loaded; put its folder on LD_LIBRARY_PATH"
        );
        return;
    };
    let mut variants = BTreeSet::new();
    for case in cases().unwrap() {
        for precision in PRECISIONS {
            let p = lower(&case.network, options(case.batch, precision, true), 132).unwrap();
            for step in p.training.iter().chain(&p.inference) {
                if let Step::Kernel(l) | Step::Beside(_, l) = step {
                    variants.insert((l.source, l.defines.clone()));
                }
            }
        }
    }
    for act in [vec![], vec!["ACT_BF16"]] {
        for wide in [vec![], vec!["OUT_F32"]] {
            variants.insert((source::DIRECT, [act.clone(), wide].concat()));
        }
    }
    for kernel in super::session::KERNELS.into_iter().chain(super::selftest::KERNELS) {
        variants.insert((kernel.source, kernel.defines.to_vec()));
    }
    for low in [vec![], vec!["LOW=1"]] {
        variants.insert((crate::augment::CUDA_SOURCE, low));
    }
    let own = super::hopper::tests::examples();
    let own = own.iter().map(|(source, defines)| {
        ((*source, defines.iter().map(String::as_str).collect::<Vec<_>>()), HOPPER)
    });
    let both =
        |v: &(&'static str, Vec<&'static str>)| ["sm_80", "sm_90"].map(|arch| (v.clone(), arch));
    let jobs: Vec<_> = variants.iter().flat_map(both).chain(own).collect();
    eprintln!("NVRTC {major}.{minor}: {} variants", jobs.len());
    jobs.par_iter().for_each(|((source, defines), arch)| {
        let code = nvrtc::compile(source, defines, arch);
        assert!(code.is_ok(), "{defines:?} for {arch}: {}", code.unwrap_err());
    });
}

/// They say what to do instead, before anything runs.
#[test]
fn likelihoods_of_the_cpu_alone_are_refused() {
    let by_row = Scale::ByRow { start: 1.0 };
    for loss in [
        Loss::Gaussian { scale: by_row },
        Loss::StudentT { scale: by_row, dof: 4.0 },
        Loss::StudentT { scale: Scale::Known(1.0), dof: 4.0 },
    ] {
        let mut b = NetworkBuilder::new(3);
        let outputs = if loss.is_by_row() { 2 } else { 1 };
        let out = b.linear("fc1", b.input(), outputs).unwrap();
        let network = b.finish(out, loss).unwrap();
        let found = lower(&network, options(8, Precision::F32, true), 132);
        let text = found.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("train with --device cpu"), "{text}");
    }
}
