//! Networks with a fixed number of live weights, pruned one by one: which weights a method may
//! prune, how many each layer gets, and which of them go and come.

use std::ops::Range;

use rayon::prelude::*;
use thinfer_data::{Error, Result};
use thinfer_engine::noise::{Key, Stream};
use thinfer_engine::{Arena, Network};

use super::mask::Cut;
use super::registry::Setup;
use crate::prune::{ALIVE, KEEP, count};

/// What `prune.dense_layers` calls the classifier: most networks have a layer of this name.
const CLASSIFIER: &str = "fc";
/// What it calls shortcuts. DSR leaves them dense where there are any.
const SHORTCUTS: [&str; 2] = ["*.downsample.0", "*.shortcut"];

/// The weight tensors that may be pruned, as places in the flat buffers. Biases and norms never
/// are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layers {
    ranges: Vec<Range<usize>>,
}

impl Layers {
    /// All weight tensors of a network but those of `dense` layers. A name that starts with `*`
    /// stands for all layers whose name ends like it, and `fc` for the last layer, whatever that is
    /// called. A name that fits no layer is refused, but for those of shortcuts: not every network
    /// has some.
    pub fn new(network: &Network, dense: &[String]) -> Result<Self> {
        let weights: Vec<(&str, Range<usize>)> = network
            .params()
            .iter()
            .filter(|param| param.role.is_weight())
            .map(|param| (param.name.strip_suffix(".weight").unwrap_or(&param.name), param.range()))
            .collect();
        let last = weights.last().map(|(layer, _)| *layer);
        let named = |layer: &str, name: &str| match name.strip_prefix('*') {
            Some(end) => layer.ends_with(end),
            None => layer == name || (name == CLASSIFIER && Some(layer) == last),
        };
        let fits = |name: &str| weights.iter().any(|(layer, _)| named(layer, name));
        if let Some(name) = dense.iter().find(|name| !fits(name) && !SHORTCUTS.contains(&&***name))
        {
            let layers: Vec<&str> = weights.iter().map(|(layer, _)| *layer).collect();
            let problem = format!(
                "`{name}` is no layer of this network and no end of one's name; it has {}",
                layers.join(", ")
            );
            return Err(Error::config("prune.dense_layers", problem));
        }
        let prunable =
            weights.iter().filter(|(layer, _)| !dense.iter().any(|name| named(layer, name)));
        Ok(Self { ranges: prunable.map(|(_, range)| range.clone()).collect() })
    }

    /// Layers at given places, in ascending order and apart from each other.
    pub fn at(ranges: Vec<Range<usize>>) -> Self {
        Self { ranges }
    }

    /// Their places.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// How many weights each has.
    pub fn sizes(&self) -> Vec<usize> {
        self.ranges.iter().map(Range::len).collect()
    }

    /// How many live weights each has.
    pub fn live(&self, marks: &[u8]) -> Vec<usize> {
        let live = |range: &Range<usize>| count(&marks[range.clone()], KEEP);
        self.ranges.par_iter().map(live).collect()
    }

    /// The share of them that is pruned.
    pub fn pruned_share(&self, marks: &[u8]) -> f64 {
        let all: usize = self.sizes().iter().sum();
        1.0 - self.live(marks).iter().sum::<usize>() as f64 / all.max(1) as f64
    }

    /// How many weights are pruned where `target` of all `parameters` are, all of them in these
    /// layers.
    pub fn budget(&self, target: f64, parameters: usize) -> Result<usize> {
        let (pruned, all) = ((target * parameters as f64).ceil() as usize, self.sizes());
        let most = all.iter().sum::<usize>().saturating_sub(all.len());
        if pruned > most {
            let problem = format!(
                "is {target}, but at most {:.3} of this network's parameters can be pruned; give a smaller one, or fewer prune.dense_layers",
                most as f64 / parameters.max(1) as f64
            );
            return Err(Error::config("prune.target", problem));
        }
        Ok(pruned)
    }

    /// Starts with `pruned` weights fewer: the same density in each layer, at random places.
    ///
    /// Live weights are scaled by 1/√density, after which what a layer passes on has the size that
    /// it has in the dense network.
    ///
    /// Deviation: the programs of SM and DSR do not scale. Without batch norm a network then starts
    /// with a signal that fades from layer to layer, and does not learn.
    pub fn start(&self, pruned: usize, arena: &mut Arena, key: Key) -> Result<()> {
        let mut marks = vec![ALIVE; arena.len()];
        let sizes = self.sizes();
        // One weight of each layer stays, or the network would be cut in two.
        let (shares, caps): (Vec<f64>, Vec<usize>) =
            sizes.iter().map(|&size| (size as f64, size.saturating_sub(1))).unzip();
        let key = Key { stream: Stream::Mask, ..key };
        let mut weights = arena.weights().to_vec();
        for (layer, gone) in apportion(pruned, &shares, &caps).into_iter().enumerate() {
            let order = key.permutation(layer as u64, sizes[layer]);
            let first = self.ranges[layer].start;
            order[..gone].iter().for_each(|&at| marks[first + at as usize] &= !KEEP);
            let scale = (sizes[layer] as f64 / (sizes[layer] - gone) as f64).sqrt() as f32;
            weights[self.ranges[layer].clone()].iter_mut().for_each(|w| *w *= scale);
        }
        arena.set_weights(&weights)?;
        arena.set_marks(&marks)?;
        arena.run(&Cut);
        Ok(())
    }
}

/// Divides `total` in proportion to `shares`, with at most `caps` for each. The parts are whole and
/// add up to `total`, or to all caps where those are less. What a cap leaves over is divided among
/// the others in the same way.
///
/// Deviation: DSR's program rounds each layer and gives what is left over to one at random; here
/// the largest fractions get it.
pub fn apportion(total: usize, shares: &[f64], caps: &[usize]) -> Vec<usize> {
    let mut given = vec![0; caps.len()];
    let mut left = total.min(caps.iter().sum());
    while left > 0 {
        let open: Vec<usize> = (0..caps.len()).filter(|&at| given[at] < caps[at]).collect();
        let sum: f64 = open.iter().map(|&at| shares[at]).sum();
        let part = |at: usize| if sum > 0.0 { shares[at] / sum } else { 1.0 / open.len() as f64 };
        let mut parts: Vec<(usize, f64)> =
            open.iter().map(|&at| (at, left as f64 * part(at))).collect();
        let mut capped = false;
        for &(at, part) in &parts {
            let more = (part as usize).min(caps[at] - given[at]).min(left);
            capped |= more < part as usize;
            given[at] += more;
            left -= more;
        }
        if !capped {
            // Less than one for each is left: the largest fractions get one more.
            parts.sort_by(|a, b| b.1.fract().total_cmp(&a.1.fract()));
            for (at, _) in parts {
                if left > 0 && given[at] < caps[at] {
                    given[at] += 1;
                    left -= 1;
                }
            }
        }
    }
    given
}

/// The places of the `count` smallest values, and of equal ones those that come first.
pub fn smallest(mut values: Vec<(f32, u32)>, count: usize) -> Vec<u32> {
    if count < values.len() {
        let before = |a: &(f32, u32), b: &(f32, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        values.select_nth_unstable_by(count, before);
        values.truncate(count);
    }
    values.into_iter().map(|(_, at)| at).collect()
}

/// The sizes of the values at the places of `range` that are live, or that are not, with the
/// places.
pub fn sizes_at(range: &Range<usize>, values: &[f32], marks: &[u8], live: bool) -> Vec<(f32, u32)> {
    let wanted = range.clone().filter(|&at| (marks[at] & KEEP != 0) == live);
    wanted.map(|at| (values[at].abs(), at as u32)).collect()
}

/// The keys that SM and DSR read.
pub(super) const READS: &[&str] = &[
    "method.momentum",
    "method.nesterov",
    "prune.target",
    "prune.rate",
    "prune.dense_layers",
    "prune.freeze_after_epochs",
    "prune.freeze_after_cycles",
];

/// Defaults of methods with a fixed number of live weights.
pub(super) const DEFAULTS: &str = "
method.nesterov = true
prune.target = 0.9
train.samples_per_cycle = 1
";

impl Layers {
    /// The layers that a configuration leaves open to pruning, and how many weights it prunes.
    pub(super) fn of(setup: &Setup<'_>) -> Result<(Self, usize)> {
        let layers = Self::new(setup.network, &setup.prune.dense_layers)?;
        let target = setup.prune.target.unwrap_or_default();
        let pruned = layers.budget(target, setup.network.params().len())?;
        Ok((layers, pruned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_layers_are_found_by_name_and_mistakes_are_refused() {
        use crate::model::image_network;
        let cifar = thinfer_engine::Shape { height: 32, width: 32, channels: 3 };
        let [lenet, resnet] =
            ["lenet", "resnet18-cifar"].map(|name| image_network(name, cifar, 10).unwrap());
        let layers = |network: &Network, dense: &[&str]| {
            let dense: Vec<String> = dense.iter().map(|name| (*name).to_owned()).collect();
            Layers::new(network, &dense).map(|layers| layers.ranges().to_vec())
        };
        let range = |network: &Network, name: &str| network.params().find(name).unwrap().range();
        // The classifier, whatever its name.
        for (network, name) in [(&lenet, "fc3.weight"), (&resnet, "fc.weight")] {
            let all = layers(network, &[]).unwrap();
            let without = layers(network, &["fc"]).unwrap();
            assert_eq!(all.last(), Some(&range(network, name)));
            assert_eq!(without, all[..all.len() - 1]);
        }
        assert_eq!(layers(&lenet, &["fc3"]).unwrap(), layers(&lenet, &["fc"]).unwrap());
        // The default of DSR fits a network without shortcuts.
        let default = ["conv1", "fc", "*.downsample.0", "*.shortcut"];
        assert_eq!(layers(&lenet, &default).unwrap().len(), 3);
        assert_eq!(layers(&resnet, &default).unwrap().len(), 21 - 5);
        for wrong in ["conv9", "*.downsample.1", "fc2.weight"] {
            let error = layers(&lenet, &["conv1", wrong]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let text = error.to_string();
            assert!(text.contains(wrong) && text.contains("conv1, conv2, fc1, fc2, fc3"), "{text}");
        }
    }

    #[test]
    fn a_start_keeps_density_and_size() {
        let layers = Layers::at(vec![0..400, 410..510]);
        let mut arena = Arena::flat(520, 1);
        arena.set_weights(&[0.5; 520]).unwrap();
        layers.start(375, &mut arena, Key::new(1, 0, Stream::Sampler)).unwrap();
        assert_eq!(layers.live(arena.marks()), [100, 25]);
        let live = |at: usize| arena.marks()[at] & KEEP != 0;
        for at in 0..520 {
            let inside = layers.ranges().iter().any(|range| range.contains(&at));
            let want = if inside && live(at) {
                1.0
            } else if inside {
                0.0
            } else {
                0.5
            };
            assert_eq!(arena.weights()[at], want, "place {at}");
        }
    }

    #[test]
    fn parts_are_whole_and_add_up() {
        assert_eq!(apportion(10, &[1.0, 1.0, 2.0], &[100; 3]), [3, 2, 5]);
        assert_eq!(apportion(10, &[1.0, 1.0, 2.0], &[100, 100, 3]), [4, 3, 3]);
        assert_eq!(apportion(10, &[0.0, 0.0, 1.0], &[5, 5, 4]), [3, 3, 4]);
        assert_eq!(apportion(9, &[1.0], &[4]), [4]);
        assert_eq!(apportion(3, &[], &[]), [0usize; 0]);
    }

    #[test]
    fn the_smallest_come_first_and_ties_by_place() {
        let values = vec![(0.5, 7), (0.1, 9), (0.5, 3), (2.0, 1)];
        assert_eq!(smallest(values.clone(), 0), [0u32; 0]);
        let mut two = smallest(values.clone(), 2);
        two.sort_unstable();
        assert_eq!(two, [3, 9]);
        assert_eq!(smallest(values, 9).len(), 4);
    }
}
