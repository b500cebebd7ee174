//! What a plan is said to take is what it takes, counted by the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use thinfer_engine::{
    Arena, Dataset, Law, Loss, Mixture, Network, NetworkBuilder, Passes, Plan, Shape, Window,
};

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

fn perceptron(inputs: usize, hidden: usize) -> Network {
    let mut builder = NetworkBuilder::new(inputs);
    let hidden = builder.linear("fc1", builder.input(), hidden).unwrap();
    let hidden = builder.tanh(hidden).unwrap();
    let output = builder.linear("fc2", hidden, 1).unwrap();
    builder.finish(output, Loss::gaussian(1.0)).unwrap()
}

/// Convolutions, pooling and a batch norm, and random scales where there is a mixture.
fn images(side: usize, mixture: Option<Mixture>) -> Network {
    let shape = Shape { height: side, width: side, channels: 3 };
    let mut builder = NetworkBuilder::image(shape);
    let mut x = builder.conv2d("conv1", builder.input(), 16, Window::square(3, 1, 1)).unwrap();
    x = match mixture {
        Some(mixture) => builder.vary("vary1", x, mixture, true).unwrap(),
        None => builder.batch_norm("bn1", x).unwrap(),
    };
    x = builder.relu(x).unwrap();
    x = builder.max_pool(x, Window::square(2, 2, 0)).unwrap();
    x = builder.conv2d("conv2", x, 24, Window::square(3, 2, 1)).unwrap();
    x = builder.relu(x).unwrap();
    x = builder.global_average_pool(x).unwrap();
    let output = builder.linear("fc", x, 10).unwrap();
    builder.finish(output, Loss::CrossEntropy { smoothing: 0.0 }).unwrap()
}

/// One test, because the count is of the whole program.
#[test]
fn plans_are_counted() {
    a_plan_takes_what_it_says_and_a_step_takes_nothing_more();
    predictions_do_not_depend_on_how_many_rows_go_at_once();
    a_plan_for_predictions_gives_no_gradient();
    a_batch_that_no_machine_can_hold_is_refused();
}

fn a_plan_takes_what_it_says_and_a_step_takes_nothing_more() {
    let mixture = Mixture { members: 2, law: Law::Gaussian, draws: 1 };
    let cases = [
        ("turned", perceptron(20, 8), 100),
        ("rows", perceptron(3000, 5), 1000),
        ("wide rows", perceptron(400, 300), 600),
        ("layers", images(32, None), 40),
        ("large layers", images(96, None), 9),
        ("one row", images(48, None), 1),
        ("mixture", images(24, Some(mixture)), 12),
    ];
    for (name, network, rows) in cases {
        for passes in [Passes::ForwardAndBack, Passes::Forward] {
            let said = Plan::bytes_of(&network, rows, passes) as f64;
            let width = network.input_len();
            let data = Dataset::new(width, 1, vec![0.5; width * rows], vec![1.0; rows]).unwrap();
            let mut arena = Arena::new(&network, 0);
            let order: Vec<u32> = (0..rows as u32).collect();
            let mut out = vec![0.0; rows * network.output_len()];
            let before = HELD.load(Ordering::Relaxed);
            MOST.store(before, Ordering::Relaxed);
            let mut plan = match passes {
                Passes::ForwardAndBack => Plan::new(&network, rows).unwrap(),
                Passes::Forward => Plan::for_predictions(&network, rows).unwrap(),
            };
            let taken = (MOST.load(Ordering::Relaxed) - before) as f64;
            // The network itself, and pieces that are a few numbers long.
            let beside = 64e3;
            assert!(
                taken >= 0.99 * said && taken <= 1.02 * said + beside,
                "{name}, {passes:?}: {said} bytes were said and {taken} taken"
            );
            if passes == Passes::ForwardAndBack {
                plan.gradient(&mut arena, &data, &order).unwrap();
            }
            let (weights, stats) = (arena.weights().to_vec(), arena.stats().to_vec());
            plan.forward(&weights, &stats, &data, 0..rows, &mut out).unwrap();
            let steps = (MOST.load(Ordering::Relaxed) - before) as f64 - taken;
            // The copies above, and what general products pack, about a cache of each thread.
            assert!(
                steps <= 4e6 + 8.0 * weights.len() as f64,
                "{name}, {passes:?}: steps took {steps} bytes more"
            );
        }
    }
}

/// How many rows go at once is chosen by what fits, which must not show in a prediction.
fn predictions_do_not_depend_on_how_many_rows_go_at_once() {
    let mixture = Mixture { members: 2, law: Law::Gaussian, draws: 1 };
    for network in [images(20, None), images(9, Some(mixture))] {
        let (rows, width) = (70, network.input_len());
        let value = |i: usize| ((i * 37) % 101) as f32 / 50.0 - 1.0;
        let inputs: Vec<f32> = (0..rows * width).map(value).collect();
        let data = Dataset::new(width, 1, inputs, vec![1.0; rows]).unwrap();
        let weights: Vec<f32> = (0..network.params().len()).map(|i| 0.3 * value(i + 7)).collect();
        let stats = Arena::new(&network, 0).stats().to_vec();
        let predict = |at_once: usize| {
            let mut out = vec![0.0; rows * network.output_len()];
            let mut plan = Plan::for_predictions(&network, at_once).unwrap();
            plan.forward(&weights, &stats, &data, 0..rows, &mut out).unwrap();
            out.iter().map(|value| value.to_bits()).collect::<Vec<u32>>()
        };
        let all = predict(rows);
        for at_once in [1, 3, 8, 32, 64] {
            assert_eq!(predict(at_once), all, "{at_once} rows at once, {width} inputs");
        }
    }
}

fn a_plan_for_predictions_gives_no_gradient() {
    let network = perceptron(20, 8);
    let data = Dataset::new(20, 1, vec![0.5; 20], vec![1.0]).unwrap();
    let mut arena = Arena::new(&network, 0);
    let mut plan = Plan::for_predictions(&network, 1).unwrap();
    let error = plan.gradient(&mut arena, &data, &[0]).unwrap_err();
    assert!(error.to_string().contains("a plan for predictions"), "{error}");
}

fn a_batch_that_no_machine_can_hold_is_refused() {
    let rows = usize::MAX / (3 * 32 * 32 * 8);
    assert!(Plan::new(&images(32, None), rows).is_err());
}
