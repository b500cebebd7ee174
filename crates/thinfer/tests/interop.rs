//! A recorded case of PyTorch: LeNet with fixed weights, through the file that PyTorch would write.
//!
//! Made with `python tests/interop/check.py --record` (PyTorch 2.15, f64). Tensor k of the state
//! dict, from 1, has the numbers of `pattern(count, k)` over √fan_in (biases: over 2), and the
//! image those of `pattern(784, 99)`.

use safetensors::tensor::{Dtype, TensorView};
use thinfer::model::image_network;
use thinfer::weights;
use thinfer_engine::{Arena, Dataset, Network, Plan, Shape};

const LOGITS: [f32; 10] = [
    -0.42088602,
    0.21825764,
    -0.33817521,
    0.25492074,
    0.25543636,
    0.33852613,
    -0.30538422,
    0.33612845,
    0.10250534,
    -0.06590059,
];

fn pattern(count: usize, seed: u64, scale: f64) -> Vec<f32> {
    let mut state = seed;
    let numbers = (0..count).map(|_| {
        state = state * 48271 % 2_147_483_647;
        (state as f64 / 2_147_483_647.0 * 2.0 - 1.0) * scale
    });
    numbers.map(|x| x as f32).collect()
}

fn lenet() -> Network {
    image_network("lenet", Shape { height: 28, width: 28, channels: 1 }, 10).unwrap()
}

#[test]
fn a_recorded_network_of_pytorch_gives_its_logits() {
    let shapes: [(&str, &[usize]); 10] = [
        ("conv1.weight", &[6, 1, 5, 5]),
        ("conv1.bias", &[6]),
        ("conv2.weight", &[16, 6, 5, 5]),
        ("conv2.bias", &[16]),
        ("fc1.weight", &[120, 400]),
        ("fc1.bias", &[120]),
        ("fc2.weight", &[84, 120]),
        ("fc2.bias", &[84]),
        ("fc3.weight", &[10, 84]),
        ("fc3.bias", &[10]),
    ];
    let tensors: Vec<Vec<u8>> = shapes
        .iter()
        .zip(1..)
        .map(|((_, shape), seed)| {
            let fan_in: usize = if shape.len() > 1 { shape[1..].iter().product() } else { 1 };
            let scale = 1.0 / (fan_in.max(4) as f64).sqrt();
            let values = pattern(shape.iter().product(), seed, scale);
            values.iter().flat_map(|v| v.to_le_bytes()).collect()
        })
        .collect();
    let views = shapes.iter().zip(&tensors).map(|((name, shape), bytes)| {
        (*name, TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap())
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lenet.safetensors");
    std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();

    let network = lenet();
    let weights = weights::read(&path, &network).unwrap();
    // One channel, so PyTorch's order of an image is ours.
    let data = Dataset::new(784, 0, pattern(784, 99, 1.0), Vec::new()).unwrap();
    let mut logits = [0.0; 10];
    let mut plan = Plan::new(&network, 1).unwrap();
    plan.forward(&weights.params, &weights.stats, &data, 0..1, &mut logits).unwrap();
    for (got, want) in logits.iter().zip(LOGITS) {
        assert!((got - want).abs() < 1e-6, "{logits:?}");
    }
}

/// PyTorch draws convolutions and linear layers from U(−1/√fan_in, 1/√fan_in): its
/// `kaiming_uniform_(a=√5)`, with all kernel places in the fan-in.
#[test]
fn initial_weights_have_the_bounds_of_pytorch() {
    let network = lenet();
    let mut arena = Arena::new(&network, 0);
    thinfer::methods::initialize(&mut arena, network.loss(), 3, 0).unwrap();
    for (layer, fan_in) in [("conv1", 25.0), ("conv2", 150.0), ("fc1", 400.0)] {
        let bound = 1.0 / f64::sqrt(fan_in);
        for part in ["weight", "bias"] {
            let range = network.params().find(&format!("{layer}.{part}")).unwrap().range();
            let values = &arena.weights()[range];
            assert!(values.iter().all(|w| f64::from(w.abs()) <= bound * (1.0 + 1e-6)));
            if part == "weight" {
                let square = |w: &f32| f64::from(*w).powi(2);
                let variance = values.iter().map(square).sum::<f64>() / values.len() as f64;
                // Five standard errors of the mean square of a uniform number.
                let error = 5.0 * (0.8 / values.len() as f64).sqrt();
                assert!((variance / (bound * bound / 3.0) - 1.0).abs() < error, "{layer}");
            }
        }
    }
}
