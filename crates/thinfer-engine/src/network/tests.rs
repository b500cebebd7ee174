use super::*;
use crate::mixture::Law;
use crate::ops::loss::{NoiseUnit, Scale};
use crate::shape::Window;

fn residual() -> Network {
    let mut b = NetworkBuilder::new(4);
    let h = b.linear("fc1", b.input(), 3).unwrap();
    let h = b.relu(h).unwrap();
    let r = b.linear_with("fc2", h, 3, false).unwrap();
    let h = b.add(h, r).unwrap();
    let h = b.tanh(h).unwrap();
    let out = b.linear("fc3", h, 1).unwrap();
    b.finish(out, Loss::gaussian_learned(1.0)).unwrap()
}

#[test]
fn parameters_lie_one_after_another() {
    let network = residual();
    let names: Vec<&str> = network.params().iter().map(|p| p.name.as_str()).collect();
    assert_eq!(
        names,
        ["fc1.weight", "fc1.bias", "fc2.weight", "fc3.weight", "fc3.bias", "noise.log_sigma"]
    );
    let mut end = 0;
    for p in network.params() {
        assert_eq!(p.offset, end);
        end = p.range().end;
    }
    assert_eq!(network.params().len(), 12 + 3 + 9 + 3 + 1 + 1);
    assert_eq!(network.first_weight().unwrap().name, "fc1.weight");
}

/// The last unit of the output layer gives ln σ; a network without such a layer has no such unit.
#[test]
fn the_noise_of_a_row_is_the_last_unit_of_a_linear_output() {
    let by_row = Loss::Gaussian { scale: Scale::ByRow { start: 0.5 } };
    let mut b = NetworkBuilder::new(4);
    let h = b.linear("fc1", b.input(), 3).unwrap();
    let h = b.tanh(h).unwrap();
    let out = b.linear("fc2", h, 2).unwrap();
    let network = b.finish(out, by_row.clone()).unwrap();
    assert_eq!(network.params().len(), 15 + 8, "there is no `noise.log_sigma`");
    let unit = network.loss().noise_unit(network.params()).unwrap();
    assert_eq!(unit, NoiseUnit { weights: 18..21, bias: Some(22) });
    let text = serde_json::to_string(&network).unwrap();
    assert_eq!(serde_json::from_str::<Network>(&text).unwrap(), network);
    assert_eq!(Loss::gaussian_learned(1.0).noise_unit(network.params()), None);
    let mut b = NetworkBuilder::new(4);
    let h = b.linear("fc1", b.input(), 2).unwrap();
    let out = b.tanh(h).unwrap();
    let error = b.finish(out, by_row).unwrap_err().to_string();
    assert!(error.contains("needs a linear layer at the end"), "{error}");
}

fn convolutional() -> Network {
    let mut b = NetworkBuilder::image(Shape { height: 9, width: 8, channels: 3 });
    let h = b.conv2d("conv1", b.input(), 4, Window::square(3, 2, 1)).unwrap();
    let h = b.batch_norm("bn1", h).unwrap();
    let h = b.relu(h).unwrap();
    let h = b.max_pool(h, Window::square(3, 2, 1)).unwrap();
    let h = b.conv2d_with("conv2", h, 5, Window::square(1, 1, 0), true).unwrap();
    let h = b.average_pool(h, Window::square(3, 1, 1)).unwrap();
    let h = b.global_average_pool(h).unwrap();
    let out = b.linear("fc", h, 2).unwrap();
    b.finish(out, Loss::cross_entropy()).unwrap()
}

#[test]
fn windows_give_the_shapes_of_pytorch() {
    let network = convolutional();
    let sizes: Vec<[usize; 3]> =
        network.nodes().iter().map(|n| [n.shape.height, n.shape.width, n.shape.channels]).collect();
    assert_eq!(sizes[1], [5, 4, 4]);
    assert_eq!(sizes[4], [3, 2, 4]);
    assert_eq!(sizes[5], [3, 2, 5]);
    assert_eq!(sizes[6], [3, 2, 5]);
    assert_eq!(sizes[7], [1, 1, 5]);
    assert_eq!(network.multiply_adds(), 20 * 4 * 27 + 6 * 5 * 4 + 10);
    assert!(network.couples_rows());
    let stats: Vec<&str> = network.stats().iter().map(|p| p.name.as_str()).collect();
    assert_eq!(stats, ["bn1.running_mean", "bn1.running_var"]);
}

#[test]
fn impossible_windows_are_refused_with_the_reason() {
    let mut b = NetworkBuilder::image(Shape { height: 4, width: 4, channels: 1 });
    for (window, reason) in [
        (Window::square(7, 1, 0), "window of 7 pixels over an image of 4"),
        (Window::square(3, 0, 0), "stride 0"),
        (Window::square(2, 1, 2), "whole window"),
    ] {
        let error = b.conv2d("conv", NodeId(0), 1, window).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        let error = b.average_pool(NodeId(0), window).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        let error = b.max_pool(NodeId(0), window).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    assert!(b.batch_norm_with("bn", NodeId(0), 1.5, 1e-5).is_err());
    assert!(b.batch_norm_with("bn", NodeId(0), 0.1, 0.0).is_err());
}

fn indexed() -> Network {
    let mut b = NetworkBuilder::image(Shape { height: 5, width: 4, channels: 4 });
    let h = b.select(b.input(), vec![3, 1]).unwrap();
    let h = b.conv2d("conv1", h, 2, Window::square(3, 1, 1)).unwrap();
    let h = b.spread(h, vec![2, 0], 4).unwrap();
    let h = b.add(h, b.input()).unwrap();
    let out = b.linear("fc", h, 2).unwrap();
    b.finish(out, Loss::cross_entropy()).unwrap()
}

#[test]
fn lists_of_channels_must_fit() {
    let mut b = NetworkBuilder::image(Shape { height: 2, width: 2, channels: 3 });
    for list in [vec![], vec![0, 0], vec![3]] {
        assert!(b.select(NodeId(0), list.clone()).is_err(), "{list:?}");
        assert!(b.spread(NodeId(0), list.clone(), 3).is_err(), "{list:?}");
    }
    assert!(b.spread(NodeId(0), vec![0, 1], 5).is_err());
    assert!(b.spread(NodeId(0), vec![4, 0, 1], 5).is_ok());
}

fn varied() -> Network {
    let mixture = Mixture { members: 3, law: Law::Cauchy, draws: 2 };
    let mut b = NetworkBuilder::image(Shape { height: 5, width: 4, channels: 4 });
    let h = b.vary("conv1.in", b.input(), mixture, false).unwrap();
    let h = b.conv2d("conv1", h, 2, Window::square(3, 1, 1)).unwrap();
    let out = b.vary("conv1.out", h, mixture, true).unwrap();
    let out = b.global_average_pool(out).unwrap();
    b.finish(out, Loss::cross_entropy()).unwrap()
}

#[test]
fn members_are_those_of_one_mixture() {
    let network = varied();
    assert_eq!((network.repeats(), residual().repeats()), (3, 1));
    assert_eq!(network.scales_before(network.nodes().len()), 4 + 2);
    let shape = |name: &str| network.params().find(name).map(|p| p.shape.clone());
    assert_eq!(shape("conv1.in.posterior"), Some(vec![3, 4, 2]));
    assert_eq!(shape("conv1.out.bias"), Some(vec![3, 2]));
    let mut b = NetworkBuilder::new(2);
    let of = |members| Mixture { members, law: Law::Gaussian, draws: 1 };
    assert!(b.vary("a", NodeId(0), of(0), false).is_err());
    let h = b.vary("a", NodeId(0), of(2), false).unwrap();
    let error = b.vary("b", h, of(3), false).unwrap_err().to_string();
    assert!(error.contains("other members"), "{error}");
}

#[test]
fn a_network_survives_a_file() {
    for network in [residual(), convolutional(), indexed(), varied()] {
        let text = serde_json::to_string(&network).unwrap();
        assert_eq!(serde_json::from_str::<Network>(&text).unwrap(), network);
    }
}

#[test]
fn a_damaged_file_is_refused() {
    let text = serde_json::to_string(&residual()).unwrap();
    for (from, to) in [
        (r#""shape":[3,4]"#, r#""shape":[3,5]"#),
        (r#""output":6"#, r#""output":3"#),
        (r#""offset":12"#, r#""offset":13"#),
        (r#""inputs":[1]"#, r#""inputs":[77]"#),
    ] {
        assert!(text.contains(from), "{from} is not in {text}");
        let damaged = text.replacen(from, to, 1);
        assert!(serde_json::from_str::<Network>(&damaged).is_err(), "{to} was accepted");
    }
}

/// Sizes of a file are multiplied and added before anything is known of them.
#[test]
fn sizes_that_cannot_be_counted_are_refused() {
    let text = serde_json::to_string(&convolutional()).unwrap();
    let (wide, most) = (u64::from(u32::MAX) + 1, u64::MAX);
    for (from, to) in [
        (r#""height":9"#, format!(r#""height":{most}"#)),
        (r#""width":8"#, format!(r#""width":{wide}"#)),
        (r#""channels":3"#, format!(r#""channels":{most}"#)),
        (r#""channels":2"#, format!(r#""channels":{most}"#)),
        (r#""size":[3,3]"#, format!(r#""size":[{most},{most}]"#)),
        (r#""padding":[1,1]"#, format!(r#""padding":[{most},{most}]"#)),
    ] {
        assert!(text.contains(from), "{from} is not in {text}");
        let damaged = text.replacen(from, &to, 1);
        assert!(serde_json::from_str::<Network>(&damaged).is_err(), "{to} was accepted");
    }
    let padded = text
        .replacen(r#""size":[3,3]"#, &format!(r#""size":[{most},{most}]"#), 1)
        .replacen(r#""padding":[1,1]"#, &format!(r#""padding":[{0},{0}]"#, most - 1), 1);
    assert!(serde_json::from_str::<Network>(&padded).is_err());
    let many = Mixture { members: usize::MAX / 2, law: Law::Gaussian, draws: 1 };
    let error = NetworkBuilder::new(3).vary("a", NodeId(0), many, false).unwrap_err();
    assert!(matches!(error, EngineError::Overflow { .. }), "{error}");
    // The largest image, read by the largest layer: what it costs is the largest number there is.
    let side = 1 << 16;
    let mut b = NetworkBuilder::image(Shape { height: side - 1, width: side, channels: 1 });
    let out = b.conv2d("conv1", b.input(), 1, Window::square(1, 1, 0)).unwrap();
    let network = b.finish(out, Loss::gaussian(1.0)).unwrap();
    assert_eq!(network.multiply_adds(), side * (side - 1));
}

#[test]
fn dropped_inputs_leave_the_rest_in_place() {
    let network = residual();
    let (small, map) = network.with_inputs(&[3, 1]).unwrap();
    assert_eq!(small.input_len(), 2);
    assert_eq!(small.params().len(), network.params().len() - 6);
    assert_eq!(map[..6], [3, 1, 7, 5, 11, 9]);
    assert_eq!(map[6..], (12..29).collect::<Vec<u32>>());
    assert!(network.with_inputs(&[4]).is_none());
    let mut b = NetworkBuilder::new(2);
    let h = b.tanh(b.input()).unwrap();
    let out = b.linear("fc", h, 1).unwrap();
    assert!(b.finish(out, Loss::gaussian(1.0)).unwrap().with_inputs(&[0]).is_none());
}

#[test]
fn wrong_networks_are_refused_with_the_reason() {
    let mut b = NetworkBuilder::new(4);
    let h = b.linear("fc1", b.input(), 3).unwrap();
    let wide = b.linear("fc2", b.input(), 2).unwrap();
    assert!(b.add(h, wide).unwrap_err().to_string().contains("adds 3 and 2"));
    assert!(b.linear("fc1", h, 3).unwrap_err().to_string().contains("name is taken"));
    assert!(b.linear("fc9", h, 0).unwrap_err().to_string().contains("no outputs"));
    assert!(b.linear("fc9", NodeId(50), 1).unwrap_err().to_string().contains("reads node 50"));
    let loose = b.clone().finish(h, Loss::gaussian(1.0)).unwrap_err().to_string();
    assert!(loose.contains("`fc2`") && loose.contains("loose ends"), "{loose}");
    let empty = NetworkBuilder::new(0).linear("fc1", NodeId(0), 1).unwrap_err().to_string();
    assert!(empty.contains("no values"), "{empty}");
    let huge = NetworkBuilder::new(usize::MAX / 2).linear("fc1", NodeId(0), 8).unwrap_err();
    assert!(matches!(huge, EngineError::Overflow { .. }));
}
