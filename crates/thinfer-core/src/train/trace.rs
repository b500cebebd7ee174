//! The weights of a few channels at the end of every epoch, to see where they go.

use std::fmt;
use std::str::FromStr;

use thinfer_data::{Error, Result};
use thinfer_engine::Network;

const FORM: &str = "is not of the form LAYER:in:NUMBER or LAYER:out:NUMBER, such as conv2:out:3";

/// Which side of a layer a channel is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It is read.
    In,
    /// It is computed.
    Out,
}

/// One channel of a layer: all weights that read it, or all that compute it.
///
/// Written `LAYER:in:NUMBER` or `LAYER:out:NUMBER`, numbers from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The name of the layer.
    pub layer: String,
    /// The side.
    pub side: Side,
    /// Its number, from 0.
    pub number: usize,
}

impl FromStr for Channel {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::config("train.trace", format!("`{text}` {FORM}"));
        let mut parts = text.rsplitn(3, ':');
        let number = parts.next().and_then(|n| n.parse().ok()).ok_or_else(wrong)?;
        let side = match parts.next() {
            Some("in") => Side::In,
            Some("out") => Side::Out,
            _ => return Err(wrong()),
        };
        let layer = parts.next().filter(|layer| !layer.is_empty()).ok_or_else(wrong)?;
        Ok(Self { layer: layer.to_owned(), side, number })
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.side == Side::In { "in" } else { "out" };
        write!(f, "{}:{side}:{}", self.layer, self.number)
    }
}

impl Channel {
    /// Where its weights lie in the flat buffers.
    pub fn indices(&self, network: &Network) -> Result<Vec<usize>> {
        let refuse = |problem: String| Err(Error::config("train.trace", problem));
        let mut named = network.nodes().iter().filter(|node| node.name == self.layer);
        let weight =
            named.find_map(|node| node.op.weight()).map(|weight| &network.params()[weight]);
        let Some(weight) = weight else {
            let layers = network.nodes().iter().filter(|node| node.op.weight().is_some());
            let names: Vec<&str> = layers.map(|node| node.name.as_str()).collect();
            return refuse(format!(
                "`{self}`: the network has no layer of weights called `{}`; it has {}",
                self.layer,
                names.join(", ")
            ));
        };
        let (outputs, inputs) = (weight.shape[0], weight.shape[weight.shape.len() - 1]);
        let channels = if self.side == Side::In { inputs } else { outputs };
        if self.number >= channels {
            return refuse(format!(
                "`{self}`: the layer has {channels} such channels, counted from 0"
            ));
        }
        let fits = |at: &usize| match self.side {
            Side::In => at % inputs == self.number,
            Side::Out => at / weight.fan_in() == self.number,
        };
        Ok((0..weight.len()).filter(fits).map(|at| weight.offset + at).collect())
    }
}

/// What the weights of some channels were, epoch by epoch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    channels: Vec<(Channel, Vec<usize>)>,
    /// Epoch by epoch, channel by channel.
    values: Vec<f32>,
}

impl Trace {
    /// A trace of the channels that `texts` name, of no epochs yet.
    pub fn new(network: &Network, texts: &[String]) -> Result<Self> {
        let channel = |text: &String| {
            let channel: Channel = text.parse()?;
            let indices = channel.indices(network)?;
            Ok((channel, indices))
        };
        let channels = texts.iter().map(channel).collect::<Result<_>>()?;
        Ok(Self { channels, values: Vec::new() })
    }

    /// Adds the weights at the end of an epoch; every epoch must be added.
    pub fn record(&mut self, weights: &[f32]) {
        let indices = self.channels.iter().flat_map(|(_, indices)| indices);
        self.values.extend(indices.map(|&index| weights[index]));
    }

    /// All values in the order they were added, to be stored.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Puts stored values back; those of an epoch that is not complete are left out.
    pub fn restore(&mut self, mut values: Vec<f32>) {
        let width = self.width();
        values.truncate(values.len().checked_div(width).unwrap_or(0) * width);
        self.values = values;
    }

    /// Epochs so far.
    pub fn epochs(&self) -> usize {
        self.values.len().checked_div(self.width()).unwrap_or(0)
    }

    /// Each channel with the path of each of its weights over the epochs.
    pub fn paths(&self) -> Vec<(&Channel, Vec<Vec<f32>>)> {
        let (width, epochs) = (self.width(), self.epochs());
        let mut first = 0;
        let mut found = Vec::with_capacity(self.channels.len());
        for (channel, indices) in &self.channels {
            let path = |weight: usize| -> Vec<f32> {
                (0..epochs).map(|epoch| self.values[epoch * width + weight]).collect()
            };
            found.push((channel, (first..first + indices.len()).map(path).collect()));
            first += indices.len();
        }
        found
    }

    fn width(&self) -> usize {
        self.channels.iter().map(|(_, indices)| indices.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::image_network;
    use thinfer_engine::Shape;

    fn network() -> Network {
        image_network("lenet", Shape { height: 16, width: 16, channels: 1 }, 3).unwrap()
    }

    #[test]
    fn a_channel_is_what_it_is_written_as() {
        for text in ["conv2:in:3", "layer1.0.conv1:out:63"] {
            assert_eq!(text.parse::<Channel>().unwrap().to_string(), text);
        }
        for text in ["conv2", "conv2:in", "conv2:side:1", "conv2:in:-1", ":in:1", "in:1", ""] {
            let error = text.parse::<Channel>().unwrap_err().to_string();
            assert!(error.contains("train.trace") && error.contains("conv2:out:3"), "{error}");
        }
    }

    #[test]
    fn channels_have_the_weights_of_their_side() {
        let network = network();
        let weight = network.params().find("conv2.weight").unwrap().clone();
        assert_eq!(weight.shape, [16, 5, 5, 6]);
        let indices = |text: &str| text.parse::<Channel>().unwrap().indices(&network);
        let output = indices("conv2:out:2").unwrap();
        assert_eq!(output, (weight.offset + 300..weight.offset + 450).collect::<Vec<_>>());
        let input = indices("conv2:in:5").unwrap();
        assert_eq!(input.len(), 16 * 25);
        assert_eq!(input[..2], [weight.offset + 5, weight.offset + 11]);
        let error = indices("conv2:in:6").unwrap_err().to_string();
        assert!(error.contains("has 6 such channels"), "{error}");
        let error = indices("conv9:in:6").unwrap_err().to_string();
        assert!(error.contains("it has conv1, conv2, fc1, fc2, fc3"), "{error}");
    }

    #[test]
    fn paths_survive_being_stored() {
        let network = network();
        let texts = ["conv1:out:1".to_owned(), "fc3:out:0".to_owned()];
        let mut trace = Trace::new(&network, &texts).unwrap();
        let weights = |epoch: usize| -> Vec<f32> {
            (0..network.params().len()).map(|i| (i + 100_000 * epoch) as f32).collect()
        };
        (0..3).for_each(|epoch| trace.record(&weights(epoch)));
        assert_eq!(trace.epochs(), 3);
        let paths = trace.paths();
        assert_eq!((paths[0].1.len(), paths[1].1.len()), (25, 84));
        let first = network.params().find("fc3.weight").unwrap().offset as f32;
        assert_eq!(paths[1].1[0], [first, first + 100_000.0, first + 200_000.0]);

        let mut again = Trace::new(&network, &texts).unwrap();
        let mut stored = trace.values().to_vec();
        again.restore(stored.clone());
        assert_eq!(again, trace);
        stored.pop();
        again.restore(stored);
        assert_eq!(again.epochs(), 2, "half an epoch is none");
        let mut nothing = Trace::new(&network, &[]).unwrap();
        nothing.record(&weights(0));
        nothing.restore(vec![1.0]);
        assert_eq!((nothing.epochs(), nothing.paths().len()), (0, 0));
    }
}
