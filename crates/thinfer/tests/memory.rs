//! The memory plan of a run against what its chains take, counted by the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use thinfer::config::Config;
use thinfer::data::{Bundle, ImageData};
use thinfer::device::Device;
use thinfer::evaluate::evaluate;
use thinfer::experiment::chain_specs;
use thinfer::images::classify;
use thinfer::run::{MemoryPlan, Work};
use thinfer::train::{ChainSpec, Examples, Setting, Silent, run_chains};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came; only its size is counted besides.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the promises of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the promises of this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of this function.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What `work` came to, and the most that it held besides what was there before.
fn counted<R>(work: impl FnOnce() -> R) -> (R, u64) {
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let result = work();
    (result, (MOST.load(Ordering::Relaxed) - before) as u64)
}

fn config(settings: &[&str]) -> Config {
    let base = ["train.epochs=2", "train.samples_per_cycle=2", "schedule.step_size.cycles=1"];
    let set: Vec<String> = base.iter().chain(settings).map(|s| (*s).to_owned()).collect();
    Config::parse("", &set).unwrap()
}

fn assert_near(name: &str, planned: u64, taken: u64) {
    // Records, and what general products pack for each thread: the plan has a fixed sum for them.
    let beside = 3e6;
    let (planned, taken) = (planned as f64, taken as f64);
    assert!(
        planned >= 0.8 * taken - beside && planned <= 1.2 * taken + beside,
        "{name}: {planned} bytes were planned and {taken} taken"
    );
}

/// Trains with a checkpoint after every step, and evaluates.
fn compare(
    name: &str,
    specs: Vec<ChainSpec>,
    examples: Examples<'_>,
    test_rows: usize,
    evaluate: impl FnOnce(&[thinfer::train::ChainResult]),
) {
    let folder = tempfile::tempdir().unwrap();
    let work = Work::of(examples, test_rows, Device::Cpu, 2);
    let plan = MemoryPlan::new(&specs, &work);
    let stop = AtomicBool::new(false);
    let setting = Setting {
        folder: Some(folder.path()),
        checkpoint_every: Duration::MAX,
        checkpoint_steps: Some(1),
        ..Setting::in_memory(&stop, &Silent, 2)
    };
    let before = HELD.load(Ordering::Relaxed);
    let (results, taken) = counted(|| run_chains(specs, examples, &setting).unwrap());
    assert_near(name, plan.training, taken);
    // Samples count for the evaluation, too, and are there already.
    let there = (HELD.load(Ordering::Relaxed) - before) as u64;
    let ((), taken) = counted(|| evaluate(&results));
    assert_near(&format!("{name}, evaluation"), plan.evaluation, taken + there);
}

fn table(name: &str, settings: &[&str]) {
    let config = config(settings);
    let data = Bundle::load(&config.data, config.seed).unwrap();
    let specs = chain_specs(&config, &data).unwrap();
    let network = specs[0].network.clone();
    compare(name, specs, (&data.train).into(), data.test.rows(), |results| {
        evaluate(&config, &network, &data, results).unwrap();
    });
}

fn images(name: &str, settings: &[&str]) {
    let config = config(&[&["data.kind=shapes", "prune.warm_up_epochs=1"], settings].concat());
    let data = ImageData::load(&config.data, config.seed).unwrap();
    let specs = chain_specs(&config, &data).unwrap();
    let network = specs[0].network.clone();
    compare(name, specs, (&data).into(), data.test.rows(), |results| {
        let samples = results.iter().flat_map(|r| &r.snapshots);
        classify(&network, samples, &data.test, &data.augment, None).unwrap();
    });
}

/// One test, because the count is of the whole program.
#[test]
fn chains_take_what_is_planned() {
    let large = ["data.columns=500", "data.train_rows=1000", "data.test_rows=300"];
    table("a table", &[&large[..], &["model.hidden=[400, 50]", "train.batch=500"]].concat());
    table(
        "two chains",
        &[&large[..], &["model.hidden=[400]", "train.batch=500", "chains=2"]].concat(),
    );
    let some = ["data.train_rows=400", "data.test_rows=130", "train.batch=400"];
    images("lenet", &[&some[..], &["model.name=lenet"]].concat());
    let few = ["data.train_rows=10", "data.test_rows=10", "train.batch=10"];
    images("sgd", &[&few[..], &["model.name=convnet", "method.kind=sgd"]].concat());
    let once = ["train.epochs=1", "train.samples_per_cycle=1", "prune.warm_up_epochs=0"];
    images("resnet18", &[&few[..], &once, &["model.name=resnet18"]].concat());
}
