//! Images as a network reads them on the CPU.

use rayon::prelude::*;
use thinfer_engine::Dataset;
use thinfer_engine::augment::Augment;
use thinfer_engine::noise::{Key, Stream};

use super::{Images, View};
use crate::error::Result;

/// Images as the network reads them on the CPU, with their classes, in the order of `rows`.
///
/// `view` says what chance does to them; it is the same for an image wherever it lies in the batch.
pub fn image_rows(images: &Images, augment: &Augment, view: View, rows: &[u32]) -> Result<Dataset> {
    let width = augment.shape().len();
    let mut inputs = vec![0.0; rows.len() * width];
    let plain;
    let (augment, chance) = match view {
        View::Random { key, epoch } => (augment, Some((key, epoch))),
        View::Centre => {
            plain = augment.without_chance();
            (&plain, None)
        }
    };
    let decoded;
    let byte_rows: Vec<&[u8]> = match images {
        Images::Held(set) => rows.iter().map(|&row| set.image(row as usize)).collect(),
        Images::Streamed(stream) => {
            let mut bytes = vec![0; rows.len() * width];
            stream.fill(rows, view, &mut bytes)?;
            decoded = bytes;
            decoded.chunks_exact(width).collect()
        }
    };
    let work = inputs.par_chunks_exact_mut(width).zip(&byte_rows).zip(rows);
    work.try_for_each(|((out, bytes), &row)| {
        let (key, epoch) = chance.unwrap_or((Key::new(0, 0, Stream::Augment), 0));
        augment.image(bytes, augment.choice(key, epoch, row), out)
    })?;
    let labels = images.labels();
    let targets = rows.iter().map(|&row| labels[row as usize] as f32).collect();
    Ok(Dataset::new(width, 1, inputs, targets)?)
}
