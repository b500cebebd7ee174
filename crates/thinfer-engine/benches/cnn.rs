//! One training step of convolutional networks: gradient and plain SGD on a batch of 128 images.
//!
//! `cnn/lenet5` is the work of `benches/pytorch/cnn.py`.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{
    Arena, Chunk, Dataset, EngineError, Loss, Network, NetworkBuilder, NodeId, Pass, Plan, Shape,
    Window,
};

const BATCH: usize = 128;

struct Descent(f32);
impl Pass for Descent {
    fn apply(&self, chunk: Chunk<'_>) {
        for (w, g) in chunk.weights.iter_mut().zip(chunk.gradient) {
            *w -= self.0 * g;
        }
    }
}

fn lenet5() -> Result<Network, EngineError> {
    let mut b = NetworkBuilder::image(Shape { height: 28, width: 28, channels: 1 });
    let h = b.conv2d_with("conv1", b.input(), 6, Window::square(5, 1, 2), true)?;
    let h = b.relu(h)?;
    let h = b.max_pool(h, Window::square(2, 2, 0))?;
    let h = b.conv2d_with("conv2", h, 16, Window::square(5, 1, 0), true)?;
    let h = b.relu(h)?;
    let h = b.max_pool(h, Window::square(2, 2, 0))?;
    let h = b.linear("fc1", h, 120)?;
    let h = b.relu(h)?;
    let h = b.linear("fc2", h, 84)?;
    let h = b.relu(h)?;
    let out = b.linear("fc3", h, 10)?;
    b.finish(out, Loss::cross_entropy())
}

/// ResNet-20 for 32 x 32 x 3: 16, 32 and 64 channels, three blocks each.
fn resnet20() -> Result<Network, EngineError> {
    let mut b = NetworkBuilder::image(Shape { height: 32, width: 32, channels: 3 });
    let unit = |b: &mut NetworkBuilder, name: &str, from: NodeId, out, window| {
        let h = b.conv2d(&format!("{name}.conv"), from, out, window)?;
        b.batch_norm(&format!("{name}.bn"), h)
    };
    let h = unit(&mut b, "stem", NodeId(0), 16, Window::square(3, 1, 1))?;
    let mut h = b.relu(h)?;
    for (stage, channels) in [16, 32, 64].into_iter().enumerate() {
        for block in 0..3 {
            let name = |part: &str| format!("layer{stage}.{block}.{part}");
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let r = unit(&mut b, &name("1"), h, channels, Window::square(3, stride, 1))?;
            let r = b.relu(r)?;
            let r = unit(&mut b, &name("2"), r, channels, Window::square(3, 1, 1))?;
            if stride == 2 {
                h = unit(&mut b, &name("short"), h, channels, Window::square(1, 2, 0))?;
            }
            h = b.add(h, r)?;
            h = b.relu(h)?;
        }
    }
    let h = b.global_average_pool(h)?;
    let out = b.linear("fc", h, 10)?;
    b.finish(out, Loss::cross_entropy())
}

fn step(criterion: &mut Criterion) {
    for (name, network) in [("lenet5", lenet5()), ("resnet20", resnet20())] {
        let network = network.expect("a network");
        let mut group = criterion.benchmark_group("cnn");
        group.sample_size(20).measurement_time(Duration::from_secs(4));
        let images = if name == "lenet5" { 10_000 } else { 4 * BATCH };
        let mut inputs = vec![0.0; images * network.input_len()];
        Key::new(1, 0, Stream::Initial).normals(0, 0, &mut inputs);
        let classes = (0..images).map(|i| (i * 7 % 10) as f32).collect();
        let data = Dataset::new(network.input_len(), 1, inputs, classes).expect("a data set");
        let order = Key::new(1, 0, Stream::Shuffle).permutation(0, images);
        let mut weights = vec![0.0; network.params().len()];
        for param in network.params() {
            let weights = &mut weights[param.range()];
            Key::new(2, 0, Stream::Initial).normals(0, param.offset, weights);
            let scale = 1.0 / (param.fan_in() as f32).sqrt();
            weights.iter_mut().for_each(|w| *w *= scale);
        }
        for threads in [1, 2] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let pool = pool.expect("threads");
            let mut arena = Arena::new(&network, 0);
            arena.set_weights(&weights).expect("the same length");
            let mut plan = Plan::new(&network, BATCH).expect("a plan");
            group.bench_function(format!("{name}/{threads}"), |b| {
                let mut batches = order.chunks_exact(BATCH).cycle();
                pool.install(|| {
                    b.iter(|| {
                        let rows = batches.next().expect("a cycle never ends");
                        plan.gradient(&mut arena, &data, rows).expect("a gradient");
                        arena.run(&Descent(0.01));
                    });
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, step);
criterion_main!(benches);
