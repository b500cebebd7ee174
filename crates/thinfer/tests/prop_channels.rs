//! Properties of kernel groups and of the pruning of channels in image networks.

use proptest::prelude::*;
use thinfer::model::wide_resnet;
use thinfer::prune::{
    ALIVE, Channels, Goal, Grouping, Groups, KEEP, Rule, SLAB, SoftThreshold, em_step,
    group_network,
};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{
    Dataset, Loss, Network, NetworkBuilder, NodeId, Param, Plan, Role, Shape, Window,
};

fn random(n: usize, seed: u64, scale: f32) -> Vec<f32> {
    let mut values = vec![0.0; n];
    Key::new(seed, 0, Stream::Initial).normals(0, 0, &mut values);
    values.iter_mut().for_each(|v| *v *= scale);
    values
}

const IMAGE: Shape = Shape { height: 6, width: 6, channels: 3 };

/// Convolutions with biases, one after the other, then linear layers.
fn plain(widths: [usize; 3]) -> Network {
    let mut b = NetworkBuilder::image(IMAGE);
    let mut at =
        b.conv2d_with("conv1", b.input(), widths[0], Window::square(3, 1, 1), true).unwrap();
    at = b.relu(at).unwrap();
    at = b.max_pool(at, Window::square(2, 2, 0)).unwrap();
    at = b.conv2d_with("conv2", at, widths[1], Window::square(2, 1, 0), true).unwrap();
    at = b.relu(at).unwrap();
    at = b.linear("fc1", at, widths[2]).unwrap();
    at = b.relu(at).unwrap();
    let out = b.linear("fc2", at, 4).unwrap();
    b.finish(out, Loss::cross_entropy()).unwrap()
}

/// A stem and two residual blocks with batch norms after the convolutions.
fn residual([stem, inner, last]: [usize; 3]) -> Network {
    let three = Window::square(3, 1, 1);
    let mut b = NetworkBuilder::image(IMAGE);
    let conv_norm = |b: &mut NetworkBuilder, name: &str, at: NodeId, out: usize, window: Window| {
        let at = b.conv2d(name, at, out, window).unwrap();
        b.batch_norm(&format!("{name}.bn"), at).unwrap()
    };
    let mut at = conv_norm(&mut b, "stem", NodeId(0), stem, three);
    at = b.relu(at).unwrap();
    for (block, out) in [("one", stem), ("two", last)] {
        let name = |part: &str| format!("{block}.{part}");
        let mut deep = conv_norm(&mut b, &name("conv1"), at, inner, three);
        deep = b.relu(deep).unwrap();
        deep = conv_norm(&mut b, &name("conv2"), deep, out, three);
        let short = match block {
            "one" => at,
            _ => conv_norm(&mut b, &name("short"), at, out, Window::square(1, 1, 0)),
        };
        at = b.add(deep, short).unwrap();
        at = b.relu(at).unwrap();
    }
    at = b.global_average_pool(at).unwrap();
    let out = b.linear("fc", at, 4).unwrap();
    b.finish(out, Loss::cross_entropy()).unwrap()
}

fn network(which: usize, widths: [usize; 3]) -> Network {
    match which {
        0 => plain(widths),
        1 => residual(widths),
        _ => wide_resnet(10, 1, IMAGE, 4, Loss::cross_entropy()).unwrap(),
    }
}

/// Weights whose channels differ in width, so that a threshold parts them.
fn uneven(network: &Network, seed: u64) -> Vec<f32> {
    let key = Key::new(seed, 1, Stream::Initial);
    let mut weights = random(network.params().len(), seed, 0.1);
    for (number, param) in network.params().iter().enumerate().filter(|(_, p)| p.role.is_weight()) {
        let (inputs, row) = (param.shape[param.shape.len() - 1], param.fan_in());
        for (at, w) in weights[param.range()].iter_mut().enumerate() {
            let scale =
                |of: usize, which: usize| key.uniform((2 * number + which) as u64, of) + 0.05;
            *w *= scale(at % inputs, 0) * scale(at / row, 1);
        }
    }
    weights
}

fn share(marks: &[u8]) -> f64 {
    marks.iter().filter(|m| *m & KEEP == 0).count() as f64 / marks.len() as f64
}

fn masked(weights: &[f32], marks: &[u8]) -> Vec<f32> {
    weights.iter().zip(marks).map(|(w, m)| if m & KEEP != 0 { *w } else { 0.0 }).collect()
}

/// Outputs with running means of 0 and variances of 1.
fn outputs(network: &Network, weights: &[f32], images: &[f32]) -> Vec<f32> {
    let rows = images.len() / IMAGE.len();
    let mut stats = vec![0.0; network.stats().len()];
    for param in network.stats().iter().filter(|p| p.role == Role::RunningVariance) {
        stats[param.range()].fill(1.0);
    }
    let data = Dataset::new(IMAGE.len(), 1, images.to_vec(), vec![0.0; rows]).unwrap();
    let mut out = vec![0.0; rows * network.output_len()];
    Plan::new(network, rows).unwrap().forward(weights, &stats, &data, 0..rows, &mut out).unwrap();
    out
}

/// Whether all weights of an output channel are pruned.
fn output_is_dead(param: &Param, marks: &[u8], output: usize) -> bool {
    let start = param.offset + output * param.fan_in();
    marks[start..start + param.fan_in()].iter().all(|m| m & KEEP == 0)
}

/// Every index of a 4-D weight: (flat, output, input).
fn places(param: &Param) -> impl Iterator<Item = (usize, usize, usize)> + Clone {
    let (inputs, row, start) = (param.shape[param.shape.len() - 1], param.fan_in(), param.offset);
    (0..param.len()).map(move |at| (start + at, at / row, at % inputs))
}

fn range(values: impl Iterator<Item = f32> + Clone, rule: Rule) -> f32 {
    let of = |w: f32| if rule == Rule::AbsoluteRange { w.abs() } else { w };
    let most = values.clone().map(of).fold(f32::NEG_INFINITY, f32::max);
    most - values.map(of).fold(f32::INFINITY, f32::min)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn groups_part_the_weights_of_a_network(
        which in 0usize..3, widths in [1usize..6, 1usize..6, 1usize..6], kind in 0usize..4,
    ) {
        let network = network(which, widths);
        let kinds = [Grouping::Kernel, Grouping::Input, Grouping::Output, Grouping::Weight];
        let mut seen = vec![0; network.params().len()];
        for groups in group_network(&network, kinds[kind], None) {
            let mut sizes = vec![0; groups.count()];
            groups.for_each(|at, group| {
                seen[at] += 1;
                sizes[group] += 1;
            });
            for (group, size) in sizes.into_iter().enumerate() {
                prop_assert_eq!(size, groups.size(group));
            }
        }
        for param in network.params() {
            let times = usize::from(param.role.is_weight());
            prop_assert!(seen[param.range()].iter().all(|n| *n == times), "{}", param.name);
        }
    }

    /// Kernel by kernel, against sums over the two middle axes; the largest of these shapes is
    /// shared among threads.
    #[test]
    fn em_looks_at_kernels(
        outputs in 1usize..40, rows in 1usize..4, columns in 1usize..4, inputs in 1usize..200,
        seed in 0u64..1000,
    ) {
        let shape = vec![outputs, rows, columns, inputs];
        let param = Param { name: "w".into(), shape, role: Role::ConvWeight, offset: 3 };
        let weights = random(param.len() + 5, seed, 1.0);
        let mut marks = vec![KEEP; weights.len()];
        let groups = Groups::new(&param, Grouping::Kernel);
        em_step(&groups, &weights, SoftThreshold::Given(0.9), &mut marks);
        let mut sums = vec![0.0; outputs * inputs];
        for (at, o, i) in places(&param) {
            sums[o * inputs + i] += f64::from(weights[at]).powi(2);
        }
        for (at, o, i) in places(&param) {
            let slab = sums[o * inputs + i] / (rows * columns) as f64 >= 0.9;
            prop_assert_eq!(marks[at], if slab { ALIVE } else { KEEP });
        }
        prop_assert!(marks[..3].iter().chain(&marks[3 + param.len()..]).all(|m| *m == KEEP));
    }

    /// One convolution: a channel stays where its range reaches the threshold, and the widest stays
    /// where none does.
    #[test]
    fn channels_are_pruned_by_their_range(
        outputs in 1usize..20, window in 1usize..4, inputs in 1usize..120, seed in 0u64..1000,
        threshold in 0.0f64..3.0, absolute in any::<bool>(), multiple in 1usize..6,
    ) {
        let image = Shape { height: 3, width: 3, channels: inputs };
        let mut b = NetworkBuilder::image(image);
        let at = b.conv2d("conv", b.input(), outputs, Window::square(window, 1, 0)).unwrap();
        let at = b.global_average_pool(at).unwrap();
        let out = b.linear("fc", at, 2).unwrap();
        let network = b.finish(out, Loss::cross_entropy()).unwrap();
        let conv = network.params().find("conv.weight").unwrap();
        let rule = if absolute { Rule::AbsoluteRange } else { Rule::Range };
        let weights = uneven(&network, seed);
        let spans = |count: usize, pick: fn((usize, usize, usize)) -> usize| -> Vec<f32> {
            (0..count)
                .map(|c| range(places(conv).filter(|p| pick(*p) == c).map(|p| weights[p.0]), rule))
                .collect()
        };
        // As many of the widest as fill up the last multiple, and one where none is wide enough.
        let wide = |spans: &[f32], threshold: f64| -> Vec<bool> {
            let wide = spans.iter().filter(|s| f64::from(**s) >= threshold).count();
            let count = wide.next_multiple_of(multiple).clamp(1, spans.len());
            let mut order: Vec<usize> = (0..spans.len()).collect();
            order.sort_by(|a, b| spans[*b].total_cmp(&spans[*a]));
            let mut kept = vec![false; spans.len()];
            order[..count].iter().for_each(|at| kept[*at] = true);
            kept
        };
        let [by_input, by_output] =
            [spans(inputs, |p| p.2), spans(outputs, |p| p.1)];
        let threshold = threshold * f64::from(by_output.iter().sum::<f32>()) / outputs as f64;
        let (keep_in, keep_out) = (wide(&by_input, threshold), wide(&by_output, threshold));
        let mut marks = vec![ALIVE; weights.len()];
        Channels::new(&network, rule, false)
            .in_multiples_of(multiple)
            .prune(&weights, Goal::Threshold(threshold), false, &mut marks);
        for (at, o, i) in places(conv) {
            prop_assert_eq!(marks[at] & KEEP != 0, keep_in[i] && keep_out[o]);
        }
        for param in network.params().iter().filter(|p| p.name != "conv.weight") {
            prop_assert!(marks[param.range()].iter().all(|m| *m == ALIVE), "{}", param.name);
        }
    }

    /// Without regrowth the mask only loses; with it the mask is a function of the weights alone,
    /// and everything comes back where the threshold falls. The layer of the output is never
    /// touched, nor is any soft mask.
    #[test]
    fn masks_only_lose_without_regrowth_and_come_back_with_it(
        which in 0usize..3, widths in [1usize..8, 1usize..8, 1usize..8], seed in 0u64..1000,
        thresholds in [0.0f64..0.8, 0.0f64..0.8], keep_norm in any::<bool>(),
    ) {
        let network = network(which, widths);
        let channels = Channels::new(&network, Rule::Range, keep_norm);
        let last = network.params().iter().rev().find(|p| p.role.is_weight()).unwrap();
        let mut marks = vec![ALIVE; network.params().len()];
        for (round, threshold) in thresholds.into_iter().enumerate() {
            let goal = Goal::Threshold(threshold);
            let weights = uneven(&network, seed + round as u64);
            let before = marks.clone();
            channels.prune(&weights, goal, false, &mut marks);
            prop_assert!(before.iter().zip(&marks).all(|(b, a)| b & KEEP != 0 || a & KEEP == 0));
            prop_assert!(marks.iter().all(|m| m & SLAB != 0));
            prop_assert!(marks[last.range()].iter().all(|m| *m == ALIVE));
            for param in network.params().iter().filter(|p| !p.role.is_weight()) {
                prop_assert!(!keep_norm || marks[param.range()].iter().all(|m| *m == ALIVE));
            }
            let (mut regrown, mut fresh) = (marks.clone(), vec![ALIVE; marks.len()]);
            channels.prune(&weights, goal, true, &mut regrown);
            channels.prune(&weights, goal, true, &mut fresh);
            prop_assert_eq!(&regrown, &fresh);
            channels.prune(&weights, Goal::Threshold(0.0), true, &mut regrown);
            prop_assert!(regrown.iter().all(|m| *m == ALIVE));
        }
    }

    /// A target is reached, and by at most one channel more than needed; a second step with the
    /// same target changes nothing.
    #[test]
    fn a_target_is_reached_and_hardly_exceeded(
        which in 0usize..3, widths in [3usize..9, 3usize..9, 3usize..9], seed in 0u64..1000,
        first in 0.05f64..0.4, more in 0.01f64..0.3, regrow in any::<bool>(),
    ) {
        let network = network(which, widths);
        let channels = Channels::new(&network, Rule::Range, false);
        let total = network.params().len() as f64;
        let weights = network.params().iter().filter(|p| p.role.is_weight());
        let largest = weights
            .map(|p| p.fan_in().max(p.len() / p.shape[p.shape.len() - 1]))
            .max()
            .unwrap();
        let mut marks = vec![ALIVE; network.params().len()];
        for (round, target) in [first, first + more].into_iter().enumerate() {
            prop_assume!(target < 0.9 * channels.prunable() as f64 / total);
            let weights = uneven(&network, seed + round as u64);
            channels.prune(&weights, Goal::Share(target), regrow, &mut marks);
            let reached = share(&marks);
            // A channel has a bias or norms beside its weights.
            let most = target + (largest + 7) as f64 / total;
            prop_assert!(reached >= target && reached <= most, "{reached} for {target}");
            let before = marks.clone();
            channels.prune(&weights, Goal::Share(target), regrow, &mut marks);
            prop_assert_eq!(before, &marks[..]);
        }
    }

    /// However high the threshold and however often, something of the data reaches the output.
    #[test]
    fn pruning_never_cuts_the_network(
        which in 0usize..3, widths in [1usize..6, 1usize..6, 1usize..6], seed in 0u64..1000,
        thresholds in prop::collection::vec(0.0f64..0.8, 1..4), regrow in any::<bool>(),
        everything in any::<bool>(), multiple in 1usize..4,
    ) {
        let network = network(which, widths);
        let channels = Channels::new(&network, Rule::Range, false).in_multiples_of(multiple);
        let mut marks = vec![ALIVE; network.params().len()];
        let last = if everything { 1e9 } else { 0.0 };
        for (round, threshold) in thresholds.into_iter().chain([last]).enumerate() {
            let weights = uneven(&network, seed + round as u64);
            channels.prune(&weights, Goal::Threshold(threshold), regrow, &mut marks);
        }
        // With positive weights nothing can cancel.
        let positive = masked(&vec![0.5; marks.len()], &marks);
        let images = [vec![0.0; IMAGE.len()], vec![1.0; IMAGE.len()]].concat();
        let out = outputs(&network, &positive, &images);
        let (dark, bright) = out.split_at(network.output_len());
        prop_assert!(dark != bright, "the output does not depend on the image");
    }

    /// A dead output channel takes its norm and bias with it, so nothing of it is left to read: the
    /// weights of the next layer that read it make no difference.
    #[test]
    fn nothing_comes_out_of_a_dead_channel(
        kind in 0usize..2, widths in [2usize..7, 2usize..7, 2usize..7], seed in 0u64..1000,
        target in 0.2f64..0.7,
    ) {
        let network = network(kind, widths);
        let mut marks = vec![ALIVE; network.params().len()];
        let weights: Vec<f32> = uneven(&network, seed).iter().map(|w| w * 5.0).collect();
        Channels::new(&network, Rule::Range, false)
            .prune(&weights, Goal::Share(target), false, &mut marks);
        let pairs: &[_] = match kind {
            0 => &[("conv1", "conv2"), ("fc1", "fc2")],
            _ => &[("one.conv1", "one.conv2"), ("two.conv1", "two.conv2")],
        };
        let find = |name: String| network.params().find(&name);
        let thin = masked(&weights, &marks);
        let mut other = thin.clone();
        for (layer, reader) in pairs {
            let layer_weight = find(format!("{layer}.weight")).unwrap();
            let reader = find(format!("{reader}.weight")).unwrap();
            let parts = ["bn.weight", "bn.bias", "bias"].map(|p| find(format!("{layer}.{p}")));
            for output in 0..layer_weight.shape[0] {
                let dead = output_is_dead(layer_weight, &marks, output);
                for part in parts.into_iter().flatten() {
                    prop_assert_eq!(marks[part.offset + output] & KEEP == 0, dead);
                }
                for (at, _, _) in places(reader).filter(|(_, _, i)| dead && *i == output) {
                    other[at] += 10.0;
                }
            }
        }
        let images = random(5 * IMAGE.len(), seed + 1, 1.0);
        prop_assert_eq!(outputs(&network, &thin, &images), outputs(&network, &other, &images));
    }

    /// In a pre-activation network a norm reads a sum of several convolutions, and ends with the
    /// last of them.
    #[test]
    fn a_norm_over_a_sum_ends_with_the_last_of_its_convolutions(
        seed in 0u64..1000, target in 0.3f64..0.9,
    ) {
        let network = network(2, [1; 3]);
        let mut marks = vec![ALIVE; network.params().len()];
        let weights = uneven(&network, seed);
        Channels::new(&network, Rule::Range, false)
            .prune(&weights, Goal::Share(target), false, &mut marks);
        let find = |name: &str| network.params().find(name).unwrap();
        for (norm, sources) in [
            ("layer1.0.bn1", vec!["conv1"]),
            ("layer1.0.bn2", vec!["layer1.0.conv1"]),
            ("layer2.0.bn1", vec!["conv1", "layer1.0.conv2"]),
            ("layer3.0.bn1", vec!["layer2.0.conv2", "layer2.0.shortcut"]),
            ("bn1", vec!["layer3.0.conv2", "layer3.0.shortcut"]),
        ] {
            for channel in 0..find(&format!("{norm}.weight")).shape[0] {
                let dead = sources.iter().all(|name| {
                    output_is_dead(find(&format!("{name}.weight")), &marks, channel)
                });
                for part in ["weight", "bias"] {
                    let at = find(&format!("{norm}.{part}")).offset + channel;
                    prop_assert_eq!(marks[at] & KEEP == 0, dead, "{} {}", norm, channel);
                }
            }
        }
    }
}

/// The masks do not depend on the number of threads, on a network large enough to be shared.
#[test]
fn masks_are_the_same_for_any_number_of_threads() {
    let network = wide_resnet(10, 4, IMAGE, 4, Loss::cross_entropy()).unwrap();
    let weights = uneven(&network, 3);
    let channels = Channels::new(&network, Rule::Range, false);
    let groups = group_network(&network, Grouping::Kernel, None);
    let masks = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut marks = vec![ALIVE; weights.len()];
            for groups in &groups {
                em_step(groups, &weights, SoftThreshold::Given(1e-4), &mut marks);
            }
            channels.prune(&weights, Goal::Share(0.6), false, &mut marks);
            marks
        })
    };
    let one = masks(1);
    assert!(one.iter().any(|m| m & SLAB == 0) && share(&one) >= 0.6);
    assert_eq!(one, masks(3));
}

/// Two convolutions, the first over 36 pixels, the second over 9; four channels each.
fn two_layers() -> (Network, [Param; 2]) {
    let mut b = NetworkBuilder::image(IMAGE);
    let mut at = b.conv2d("one", b.input(), 4, Window::square(3, 1, 1)).unwrap();
    at = b.relu(at).unwrap();
    at = b.conv2d("two", at, 4, Window::square(3, 2, 1)).unwrap();
    at = b.relu(at).unwrap();
    at = b.global_average_pool(at).unwrap();
    let out = b.linear("fc", at, 2).unwrap();
    let network = b.finish(out, Loss::cross_entropy()).unwrap();
    let layers = ["one.weight", "two.weight"].map(|n| network.params().find(n).unwrap().clone());
    (network, layers)
}

/// Weights whose ranges are the first given ones in the output channels of the first layer, and the
/// second ones in the input channels of the second layer; everything else is wide.
fn two_ranges(network: &Network, [one, two]: &[Param; 2], ranges: [[f32; 4]; 2]) -> Vec<f32> {
    let mut weights = vec![1.0; network.params().len()];
    for (which, (at, o, _)) in places(one).enumerate() {
        weights[at] = if which % 2 == 0 { ranges[0][o] } else { 0.0 };
    }
    for (which, (at, _, i)) in places(two).enumerate() {
        weights[at] = if (which / 4) % 2 == 0 { ranges[1][i] } else { 0.0 };
    }
    weights
}

/// What is left of the first layer's outputs and of the second one's inputs at a threshold.
fn left_at(
    threshold: f64,
    ranges: [[f32; 4]; 2],
    of: impl Fn(Channels) -> Channels,
) -> [[bool; 4]; 2] {
    let (network, layers) = two_layers();
    let weights = two_ranges(&network, &layers, ranges);
    let mut marks = vec![ALIVE; weights.len()];
    of(Channels::new(&network, Rule::Range, false)).prune(
        &weights,
        Goal::Threshold(threshold),
        false,
        &mut marks,
    );
    let mut left = [[false; 4]; 2];
    places(&layers[0]).for_each(|(at, o, _)| left[0][o] |= marks[at] & KEEP != 0);
    places(&layers[1]).for_each(|(at, _, i)| left[1][i] |= marks[at] & KEEP != 0);
    left
}

/// In multiples of two: of three narrow outputs two go, and with them the inputs that read them,
/// wide as they are, while the narrow ones that are fed stay.
#[test]
fn what_nothing_feeds_goes_before_what_is_narrow() {
    let (outputs, in_pairs) =
        ([0.1, 0.3, 9.0, 0.2], |channels: Channels| channels.in_multiples_of(2));
    let left = left_at(0.5, [outputs, [9.0, 0.1, 1.0, 9.0]], in_pairs);
    assert_eq!(left, [[false, true, true, false]; 2]);
    // None of the fed inputs is wide enough, so one of them stays, to keep the layers connected.
    let left = left_at(0.5, [outputs, [9.0, 0.1, 0.1, 9.0]], in_pairs);
    assert_eq!(left, [[false, true, true, false], [false, true, false, false]]);
}

/// At exponent x a layer whose weights are used four times as often has 4^x times the threshold.
#[test]
fn work_raises_the_threshold_where_weights_are_used_more_often() {
    // 108 weights are used 36 times and 144 nine times: 20.57 on average, so thresholds of 1 become
    // (36 / 20.57)^0.5 = 1.32 and (9 / 20.57)^0.5 = 0.66.
    for (exponent, outputs, inputs) in [
        (0.0, [false, true, true, true], [false, true, true, true]),
        (0.5, [false, false, true, true], [false, true, true, true]),
        (1.0, [false, false, false, true], [true, true, true, true]),
    ] {
        let ranges = [[0.6, 1.0, 1.4, 9.0]; 2];
        let left = left_at(1.0, ranges, |channels| channels.weighed_by_work(exponent));
        assert_eq!(left, [outputs, inputs], "exponent {exponent}");
    }
}

/// A stem of eight channels to which a block adds, each with given ranges of its outputs;
/// everything else is wide.
fn stream_of_two(stem: [f32; 8], block: [f32; 8]) -> (Network, Vec<f32>) {
    let network = residual([8, 8, 8]);
    let mut weights = vec![0.0; network.params().len()];
    for param in network.params().iter().filter(|p| p.role.is_weight()) {
        for (which, (at, o, _)) in places(param).enumerate() {
            let range = match &param.name[..] {
                "stem.weight" => stem[o],
                "one.conv2.weight" => block[o],
                _ => 9.0,
            };
            // Both halves of a channel's kernels have both ends of the range, whichever side is
            // looked at.
            weights[at] = if (which / 3) % 2 == 0 { range } else { 0.0 };
        }
    }
    (network, weights)
}

/// Which output channels of the stem and of the block are left in multiples of four.
fn left_of_stream(stem: [f32; 8], block: [f32; 8]) -> [Vec<usize>; 2] {
    let (network, weights) = stream_of_two(stem, block);
    let mut marks = vec![ALIVE; weights.len()];
    Channels::new(&network, Rule::Range, false).in_multiples_of(4).prune(
        &weights,
        Goal::Threshold(1.0),
        false,
        &mut marks,
    );
    ["stem.weight", "one.conv2.weight"].map(|name| {
        let param = network.params().find(name).unwrap();
        (0..8).filter(|o| !output_is_dead(param, &marks, *o)).collect()
    })
}

/// Six channels are wide in stem or block, so the stream keeps four, and neither layer fills up
/// with others.
#[test]
fn a_stream_keeps_the_multiple_that_is_nearest() {
    let stem = [9.0, 8.0, 0.5, 0.4, 2.0, 0.3, 0.2, 0.1];
    let block = [0.1, 7.0, 6.0, 5.0, 0.2, 1.5, 0.3, 0.4];
    assert_eq!(left_of_stream(stem, block), [vec![0, 1, 2, 3], vec![0, 1, 2, 3]]);
    // With a seventh it keeps all eight; each layer keeps its widest, in fours.
    let mut wider = block;
    wider[7] = 1.4;
    assert_eq!(left_of_stream(stem, wider), [vec![0, 1, 2, 4], (0..8).collect()]);
}
