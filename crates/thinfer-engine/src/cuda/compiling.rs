//! Kernels that smaller networks may need, compiled in the background while a network trains.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Builder, JoinHandle};

use super::Precision;
use super::context::{Gpu, locked};
use super::conv::Problem;
use super::hopper;
use super::lower::{PlanOptions, lower};
use super::nvrtc;
use super::step::Step;
use crate::network::Network;

/// Compiles in the background until all is done or this is dropped, which waits for at most one
/// kernel a thread.
pub struct Compiling {
    stop: Arc<AtomicBool>,
    /// None where there is no thread to be had: then a plan compiles what it needs.
    thread: Option<JoinHandle<()>>,
    /// Outlives the thread, which must not be the one that closes it.
    _gpu: Arc<Gpu>,
}

impl Compiling {
    /// Starts with what hasty plans for networks with fewer channels than this one and batches of
    /// so many examples may need.
    pub fn ahead(gpu: &Arc<Gpu>, network: &Network, batch: usize, precision: Precision) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (on, network, stopped) = (gpu.clone(), network.clone(), stop.clone());
        let work = move || {
            let kernels = kernels_ahead(&on, &network, batch, precision);
            // One core is left to those who train.
            let threads = thread::available_parallelism().map_or(1, NonZero::get) - 1;
            share_out(&kernels, threads, &stopped, |kernel| {
                // Chains side by side find on disk what one of them has compiled.
                if nvrtc::cache_folder().is_some() && !is_first(kernel) {
                    return;
                }
                let (source, defines) = kernel;
                let defines: Vec<&str> = defines.iter().map(String::as_str).collect();
                on.make_ready(source, &defines);
            });
        };
        let thread = Builder::new().name("kernels".into()).spawn(work).ok();
        Self { stop, thread, _gpu: gpu.clone() }
    }
}

impl Drop for Compiling {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What went wrong there goes wrong again, and is reported, where the kernel is asked
            // for.
            let _ = thread.join();
        }
    }
}

fn kernels_ahead(
    gpu: &Gpu,
    network: &Network,
    batch: usize,
    precision: Precision,
) -> Vec<hopper::Kernel> {
    if !gpu.is_hopper() {
        return Vec::new();
    }
    let batch = batch * network.repeats();
    let options =
        PlanOptions { batch, precision, deterministic: true, training: true, hasty: true };
    let Ok(program) = lower(network, options, gpu.multiprocessors()) else { return Vec::new() };
    let problem = |step: &Step| match step {
        Step::Conv(problem, _) | Step::Filter(problem, ..) => Some(*problem),
        _ => None,
    };
    let problems: BTreeSet<Problem> = program.training.iter().filter_map(problem).collect();
    let both = program.inference.iter().chain(&program.training);
    let norms: BTreeSet<hopper::Kernel> = both.flat_map(norms_of_smaller).collect();
    let convolutions = hopper::kernels_of_smaller(problems, gpu.multiprocessors() as usize);
    norms.into_iter().chain(convolutions).collect()
}

/// A norm that makes a residual sum, for sides that have a part of its channels.
fn norms_of_smaller(step: &Step) -> Vec<hopper::Kernel> {
    let Step::Kernel(launch) = step else { return Vec::new() };
    let sums = |define: &&str| matches!(*define, "RES=1" | "RES=2" | "WRITE");
    let Some(at) = launch.defines.iter().position(sums) else { return Vec::new() };
    let with = |parts: &[&'static str]| {
        let (before, after) = launch.defines.split_at(at + 1);
        let defines = [before, parts, after].concat();
        (launch.source, defines.into_iter().map(str::to_owned).collect())
    };
    // Beside a norm there are all channels.
    match launch.defines[at] {
        "RES=2" => vec![with(&["FROM"])],
        _ => vec![with(&["PART"]), with(&["FROM"]), with(&["PART", "FROM"])],
    }
}

/// Whether this process has not asked about a kernel before.
fn is_first(kernel: &hopper::Kernel) -> bool {
    static ASKED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    locked(&ASKED).insert(nvrtc::digest(kernel))
}

/// Gives each item to `work` on so many threads, one at least, in their order, until it is stopped.
fn share_out<T: Sync>(items: &[T], threads: usize, stop: &AtomicBool, work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let take = || {
        while !stop.load(Ordering::Relaxed)
            && let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed))
        {
            work(item);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // With fewer threads it takes longer.
            let _ = Builder::new().name("kernels".into()).spawn_scoped(scope, take);
        }
        take();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::networks::cases;

    fn steps(case: &str) -> Vec<Step> {
        let case = cases().unwrap().into_iter().find(|known| known.name == case).unwrap();
        let (batch, precision) = (case.batch, Precision::Bf16);
        let options =
            PlanOptions { batch, precision, deterministic: true, training: true, hasty: true };
        let program = lower(&case.network, options, 132).unwrap();
        [program.inference, program.training].concat()
    }

    /// What blocks in front of others need once a part of their channels is left is listed for the
    /// whole network.
    #[test]
    fn norms_of_smaller_networks_are_among_those_that_are_listed() {
        let listed: BTreeSet<_> =
            steps("residual network").iter().flat_map(norms_of_smaller).collect();
        let mut found = 0;
        let cases =
            ["a stream of which the last channels are added to", "last channels of shortcuts"];
        for step in cases.into_iter().flat_map(steps) {
            let Step::Kernel(launch) = step else { continue };
            let has = |names: &[&str]| launch.defines.iter().any(|define| names.contains(define));
            // The last sum of that network has no ReLU.
            if has(&["PART", "FROM"]) && has(&["RELU", "CUT=2"]) {
                let defines = launch.defines.iter().map(|&define| define.to_owned()).collect();
                assert!(listed.contains(&(launch.source, defines)), "{:?}", launch.defines);
                found += 1;
            }
        }
        assert!(found >= 7, "{found}");
    }

    #[test]
    fn a_kernel_is_new_once() {
        let kernel = |define: &str| ("one", vec![define.to_owned()]);
        assert!(is_first(&kernel("A")) && is_first(&kernel("B")));
        assert!(!is_first(&kernel("A")));
    }

    #[test]
    fn each_item_has_its_turn_and_none_has_after_the_end() {
        let items: Vec<usize> = (0..100).collect();
        for threads in [0, 1, 3] {
            let (stop, done) = (AtomicBool::new(false), Mutex::new(Vec::new()));
            share_out(&items, threads, &stop, |item| done.lock().unwrap().push(*item));
            let mut all = done.into_inner().unwrap();
            assert!(threads > 1 || all == items, "one thread keeps the order");
            all.sort_unstable();
            assert_eq!(all, items);
            let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
            share_out(&items, threads, &stop, |item| {
                done.fetch_add(1, Ordering::Relaxed);
                stop.fetch_or(*item == 10, Ordering::Relaxed);
            });
            assert!((11..=11 + threads).contains(&done.into_inner()));
        }
    }
}
