//! Networks of the paper, built as data.

mod convnet;
mod lenet;
mod rank1;
mod resnet;
mod wide_resnet;

use serde::{Deserialize, Serialize};
use thinfer_engine::{EngineError, Loss, Network, NetworkBuilder, Shape};

pub use convnet::convnet;
pub use lenet::lenet;
pub use rank1::rank1;
pub use resnet::{Stem, resnet};
pub use wide_resnet::wide_resnet;

/// What hidden units compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// max(x, 0).
    #[default]
    Relu,
    /// The hyperbolic tangent.
    Tanh,
}

/// The names that [`image_network`] knows; the last stands for wide residual networks of any size,
/// such as wrn-28-10.
pub const IMAGE_NETWORKS: [&str; 8] = [
    "convnet",
    "lenet",
    "resnet18-cifar",
    "resnet34-cifar",
    "resnet18",
    "resnet34",
    "resnet50",
    "wrn-DEPTH-WIDTH",
];

/// What is wrong with the name of a network, if anything: it must be one of [`IMAGE_NETWORKS`] or
/// of `others`.
pub fn name_problem(name: &str, others: &[&str]) -> Option<String> {
    let [plain @ .., wide] = &IMAGE_NETWORKS;
    let names = || others.iter().chain(plain).copied();
    if names().any(|known| known == name) {
        return None;
    }
    if let Some((depth, width)) = wide_sizes(name) {
        return wide_resnet::size_problem(depth, width);
    }
    let known = names().chain([*wide]).collect::<Vec<_>>().join(", ");
    let near = names()
        .map(|known| (strsim::jaro_winkler(name, known), known))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(score, _)| *score > 0.8)
        .map_or_else(String::new, |(_, near)| format!("; did you mean `{near}`?"));
    Some(format!("is not the name of a network; known are {known} (such as wrn-28-10){near}"))
}

/// Depth and width in `wrn-DEPTH-WIDTH`.
fn wide_sizes(name: &str) -> Option<(usize, usize)> {
    let (depth, width) = name.strip_prefix("wrn-")?.split_once('-')?;
    Some((depth.parse().ok()?, width.parse().ok()?))
}

/// The image network called `name`, one of [`IMAGE_NETWORKS`], for `classes` classes.
pub fn image_network(name: &str, input: Shape, classes: usize) -> Result<Network, EngineError> {
    image_network_with(name, input, classes, Loss::cross_entropy())
}

/// The same with another loss, such as one that smooths the labels.
pub fn image_network_with(
    name: &str,
    input: Shape,
    classes: usize,
    loss: Loss,
) -> Result<Network, EngineError> {
    match name {
        "convnet" => convnet(input, classes, loss),
        "lenet" => lenet(input, classes, loss),
        "resnet18-cifar" => resnet(18, Stem::Small, input, classes, loss),
        "resnet34-cifar" => resnet(34, Stem::Small, input, classes, loss),
        "resnet18" => resnet(18, Stem::Large, input, classes, loss),
        "resnet34" => resnet(34, Stem::Large, input, classes, loss),
        "resnet50" => resnet(50, Stem::Large, input, classes, loss),
        _ => match wide_sizes(name) {
            Some((depth, width)) => wide_resnet(depth, width, input, classes, loss),
            None => Err(EngineError::Network {
                node: name.to_owned(),
                problem: name_problem(name, &[]).unwrap_or_default(),
            }),
        },
    }
}

/// A multilayer perceptron: hidden layers `fc1`, `fc2`, … and the output layer after them.
pub fn mlp(
    inputs: usize,
    hidden: &[usize],
    activation: Activation,
    outputs: usize,
    loss: Loss,
) -> Result<Network, EngineError> {
    let mut builder = NetworkBuilder::new(inputs);
    let mut at = builder.input();
    for (layer, &units) in hidden.iter().enumerate() {
        at = builder.linear(&format!("fc{}", layer + 1), at, units)?;
        at = match activation {
            Activation::Relu => builder.relu(at)?,
            Activation::Tanh => builder.tanh(at)?,
        };
    }
    let out = builder.linear(&format!("fc{}", hidden.len() + 1), at, outputs)?;
    builder.finish(out, loss)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIFAR: Shape = Shape { height: 32, width: 32, channels: 3 };
    const IMAGENET: Shape = Shape { height: 224, width: 224, channels: 3 };
    const DIGITS: Shape = Shape { height: 28, width: 28, channels: 1 };

    /// Counted with PyTorch 2.15 on `tests/interop/networks.py`:
    /// `sum(p.numel() for p in model.parameters())`, and the same over running means and variances.
    #[test]
    fn parameters_are_as_many_as_in_pytorch() {
        for (name, input, classes, params, stats) in [
            ("resnet18-cifar", CIFAR, 10, 11_173_962, 9_600),
            ("resnet34-cifar", CIFAR, 100, 21_328_292, 17_024),
            ("resnet18", IMAGENET, 1000, 11_689_512, 9_600),
            ("resnet34", IMAGENET, 1000, 21_797_672, 17_024),
            ("resnet50", IMAGENET, 1000, 25_557_032, 53_120),
            ("wrn-28-10", CIFAR, 10, 36_479_194, 17_952),
            ("wrn-16-2", CIFAR, 10, 691_674, 1_824),
            ("lenet", DIGITS, 10, 61_706, 0),
            // Counted by hand.
            ("convnet", DIGITS, 10, 94_186, 448),
        ] {
            let network = image_network(name, input, classes).unwrap();
            assert_eq!(network.params().len(), params, "{name}");
            assert_eq!(network.stats().len(), stats, "{name}");
            assert_eq!(network.output_len(), classes);
        }
    }

    #[test]
    fn names_are_those_of_torchvision() {
        let network = image_network("resnet50", IMAGENET, 1000).unwrap();
        let shape = |name: &str| network.params().find(name).map(|p| p.shape.clone());
        assert_eq!(shape("conv1.weight"), Some(vec![64, 7, 7, 3]));
        assert_eq!(shape("layer1.0.downsample.0.weight"), Some(vec![256, 1, 1, 64]));
        assert_eq!(shape("layer4.2.conv3.weight"), Some(vec![2048, 1, 1, 512]));
        assert_eq!(shape("layer4.2.bn3.bias"), Some(vec![2048]));
        assert_eq!(shape("fc.weight"), Some(vec![1000, 2048]));
        assert!(network.stats().find("layer2.0.downsample.1.running_mean").is_some());
        let last = network.nodes().iter().find(|n| n.name == "layer4.2.conv3").unwrap();
        assert_eq!([last.shape.height, last.shape.width], [7, 7]);
        // Multiply-adds as published for torchvision's model.
        assert_eq!(network.multiply_adds(), 4_089_184_256);
    }

    #[test]
    fn every_network_survives_a_file() {
        for (name, input) in [("resnet18-cifar", CIFAR), ("wrn-10-1", CIFAR), ("lenet", DIGITS)] {
            let network = image_network(name, input, 10).unwrap();
            let text = serde_json::to_string(&network).unwrap();
            assert_eq!(serde_json::from_str::<Network>(&text).unwrap(), network);
        }
    }

    #[test]
    fn names_are_checked_without_building() {
        for name in IMAGE_NETWORKS.map(|name| name.replace("DEPTH-WIDTH", "16-2")) {
            assert_eq!(name_problem(&name, &[]), None, "{name}");
            let large = name.starts_with("resnet") && !name.ends_with("cifar");
            image_network(&name, if large { IMAGENET } else { CIFAR }, 10).unwrap();
        }
        assert_eq!(name_problem("mlp", &["mlp"]), None);
        let near = |name: &str| name_problem(name, &["mlp"]).unwrap();
        assert!(near("lenett").ends_with("; did you mean `lenet`?"), "{}", near("lenett"));
        assert!(near("lenett").contains("known are mlp, convnet, lenet, "), "{}", near("lenett"));
        assert!(!near("qqqq").contains("did you mean"), "{}", near("qqqq"));
        assert!(near("wrn-4-1").contains("6n + 4"));
    }

    #[test]
    fn unknown_networks_are_refused() {
        for (name, reason) in [
            ("resnet19", "known are"),
            ("wrn-28", "known are"),
            ("wrn-27-10", "6n + 4"),
            ("wrn-4-1", "6n + 4"),
            ("wrn-1000000-10", "at most 2000"),
            ("wrn-28-101", "at most 100"),
        ] {
            let error = image_network(name, CIFAR, 10).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let error = resnet(20, Stem::Small, CIFAR, 10, Loss::cross_entropy()).unwrap_err();
        assert!(error.to_string().contains("18, 34 and 50"), "{error}");
        assert!(image_network("lenet", Shape { height: 8, ..DIGITS }, 10).is_err());
    }
}
