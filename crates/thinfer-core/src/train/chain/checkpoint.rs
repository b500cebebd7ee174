//! A chain as a file, and back.

use std::path::Path;

use serde::{Deserialize, Serialize};
use thinfer_data::{Error, Result};

use super::{Chain, ChainSpec, Record, Snapshot};
use crate::train::container::{self, Container, Section};
use crate::train::cut::Cut;

#[derive(Serialize, Deserialize)]
struct Body {
    fingerprint: u32,
    chain: u32,
    step: u64,
    loss_sum: f64,
    /// `null` right after a record; a loss may be negative, so no number could say that.
    largest_loss: Option<f64>,
    clipped_steps: u64,
    /// Left out where it is not so, which it almost always is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    epoch_is_open: bool,
    records: Vec<Record>,
    /// Epoch and checksum of every snapshot so far.
    snapshots: Vec<(usize, u32)>,
}

impl Chain {
    /// The chain as one file. Snapshots are stored apart; the file lists the epochs they are from.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let body = Body {
            fingerprint: self.spec.fingerprint,
            chain: self.spec.chain,
            step: self.step,
            loss_sum: self.loss_sum,
            largest_loss: self.largest_loss,
            clipped_steps: self.clipped_steps,
            epoch_is_open: self.epoch_is_open,
            records: self.records.clone(),
            snapshots: self.snapshots.iter().map(|s| (s.epoch, s.checksum())).collect(),
        };
        let mut sections = vec![("weights".to_owned(), Section::Floats(self.arena.weights()))];
        for at in 0..self.arena.state_buffers() {
            sections.push((format!("state{at}"), Section::Floats(self.arena.state(at))));
        }
        let numbers: Vec<u8> =
            self.arena.numbers().iter().flat_map(|number| number.to_le_bytes()).collect();
        if !numbers.is_empty() {
            sections.push(("numbers".to_owned(), Section::Bytes(&numbers)));
        }
        sections.push(("marks".to_owned(), Section::Bytes(self.arena.marks())));
        sections.push(("stats".to_owned(), Section::Floats(self.arena.stats())));
        sections.push(("trace".to_owned(), Section::Floats(self.trace.values())));
        let bits = self.cut.as_ref().map(Cut::to_bits);
        if let Some(bits) = &bits {
            sections.push(("cut".to_owned(), Section::Bytes(bits)));
        }
        if !self.cycle_end.is_empty() {
            sections.push(("cycle_end".to_owned(), Section::Floats(&self.cycle_end)));
        }
        container::encode(&body, &sections)
    }

    /// Restores a chain. `snapshots` finds those that the file lists by epoch and checksum.
    pub fn from_bytes(
        spec: ChainSpec,
        path: &Path,
        bytes: &[u8],
        snapshots: impl FnOnce(&[(usize, u32)]) -> Result<Vec<Snapshot>>,
    ) -> Result<Self> {
        let file: Container<Body> = container::decode(path, bytes)?;
        if file.body.fingerprint != spec.fingerprint || file.body.chain != spec.chain {
            return Err(Error::store(
                path,
                "the checkpoint belongs to another configuration; resume with the settings it was started with, or start again with --force",
            ));
        }
        let mut chain = Self::start(spec)?;
        chain.arena.set_weights(&file.floats(path, "weights")?)?;
        for at in 0..chain.arena.state_buffers() {
            chain.arena.set_state(at, &file.floats(path, &format!("state{at}"))?)?;
        }
        if !chain.arena.numbers().is_empty() {
            let bytes = file.section(path, "numbers")?;
            if bytes.len() != 8 * chain.arena.numbers().len() {
                let problem = "what the method keeps is cut short; the file is damaged";
                return Err(Error::store(path, problem));
            }
            let (numbers, _) = bytes.as_chunks::<8>();
            chain.arena.set_numbers(numbers.iter().map(|of| f64::from_le_bytes(*of)).collect());
        }
        chain.arena.set_marks(file.section(path, "marks")?)?;
        chain.arena.set_stats(&file.floats(path, "stats")?)?;
        chain.trace.restore(file.floats(path, "trace")?);
        if file.has("cut") {
            let keep = Cut::from_bits(file.section(path, "cut")?, chain.arena.len());
            let keep = keep.ok_or_else(|| {
                Error::store(
                    path,
                    "the marks of the smaller network are cut short; the file is damaged",
                )
            })?;
            chain.cut = Some(Cut::new(&chain.spec.network, keep, false)?);
        }
        if file.has("cycle_end") {
            chain.cycle_end = file.floats(path, "cycle_end")?;
            if chain.cycle_end.len() != chain.arena.len() {
                let problem =
                    "the weights of the last cycle's end are cut short; the file is damaged";
                return Err(Error::store(path, problem));
            }
        }
        chain.hold();
        chain.snapshots = snapshots(&file.body.snapshots)?;
        chain.step = file.body.step;
        chain.loss_sum = file.body.loss_sum;
        chain.largest_loss = file.body.largest_loss;
        chain.clipped_steps = file.body.clipped_steps;
        chain.epoch_is_open = file.body.epoch_is_open;
        chain.records = file.body.records;
        Ok(chain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Before, the largest loss began at 0.
    #[test]
    fn bodies_of_before_are_read() {
        let body = |largest: &str| {
            let text = format!(
                r#"{{"fingerprint": 1, "chain": 0, "step": 2, "loss_sum": 0.5,
                    "largest_loss": {largest}, "clipped_steps": 0, "records": [], "snapshots": []}}"#
            );
            serde_json::from_str::<Body>(&text).unwrap()
        };
        assert_eq!(body("0.0").largest_loss, Some(0.0));
        assert_eq!(body("null").largest_loss, None);
        let text = serde_json::to_string(&body("null")).unwrap();
        assert!(text.contains(r#""largest_loss":null"#), "{text}");
    }
}
