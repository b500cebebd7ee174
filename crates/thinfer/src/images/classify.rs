//! Class probabilities of images, on the cores or on a GPU.

use thinfer_engine::augment::Augment;
use thinfer_engine::cuda::{Inference, Session, Source};
use thinfer_engine::{Network, Plan};

use crate::data::{Images, View};
use crate::error::Result;
use crate::posterior::softmax;
use crate::train::{OnCuda, Snapshot, image_rows};

/// Images that go through the network at once on the CPU.
const CPU_ROWS: usize = 128;
/// Images that go through the network at once on a GPU.
const GPU_ROWS: usize = 512;
/// Bytes of images that are decoded at a time, where they are not held in memory.
const DECODED: usize = 256 << 20;

/// Says which class images belong to, for one network and any weights.
pub struct Classifier {
    images: Images,
    augment: Augment,
    outputs: usize,
    place: Place,
}

enum Place {
    Cpu(Box<Plan>),
    Cuda {
        inference: Box<Inference>,
        /// Images that the device holds at a time.
        slots: usize,
    },
}

/// Weights and running statistics, or a network that trains on the GPU.
#[derive(Clone, Copy)]
enum Weights<'a> {
    Given(&'a [f32], &'a [f32]),
    Trained(&'a Session),
}

impl Classifier {
    /// Plans for `images`, on the GPU where one is given.
    pub fn new(
        network: &Network,
        images: &Images,
        augment: &Augment,
        on: Option<&OnCuda>,
    ) -> Result<Self> {
        let augment = augment.without_chance();
        let place = match on {
            None => Place::Cpu(Box::new(Plan::new(network, CPU_ROWS.min(images.rows()).max(1))?)),
            Some(on) => {
                let fit = DECODED / augment.shape().len() / GPU_ROWS * GPU_ROWS;
                let slots = fit.clamp(GPU_ROWS, images.rows().max(GPU_ROWS));
                let source = match images {
                    Images::Held(set) => Source::Images {
                        bytes: set.bytes(),
                        classes: set.labels(),
                        augment: &augment,
                    },
                    Images::Streamed(_) => {
                        Source::Ring { rows: images.rows(), slots, augment: &augment }
                    }
                };
                let plan = Inference::new(&on.gpu, network, source, GPU_ROWS, on.precision)?;
                Place::Cuda { inference: Box::new(plan), slots }
            }
        };
        Ok(Self { images: images.clone(), augment, outputs: network.output_len(), place })
    }

    /// The probability of every class, image by image.
    pub fn probabilities(&mut self, weights: &[f32], stats: &[f32]) -> Result<Vec<f64>> {
        self.run(Weights::Given(weights, stats))
    }

    /// The same for the weights that a session trains.
    pub(crate) fn probabilities_in(&mut self, session: &Session) -> Result<Vec<f64>> {
        self.run(Weights::Trained(session))
    }

    fn run(&mut self, weights: Weights<'_>) -> Result<Vec<f64>> {
        let logits = match &mut self.place {
            Place::Cpu(plan) => {
                let Weights::Given(weights, stats) = weights else { return Ok(Vec::new()) };
                let rows: Vec<u32> = (0..self.images.rows() as u32).collect();
                let mut logits = vec![0.0; rows.len() * self.outputs];
                let parts = logits.chunks_mut(CPU_ROWS * self.outputs);
                for (rows, out) in rows.chunks(CPU_ROWS).zip(parts) {
                    let data = image_rows(&self.images, &self.augment, View::Centre, rows)?;
                    plan.forward(weights, stats, &data, 0..rows.len(), out)?;
                }
                logits
            }
            Place::Cuda { inference, slots } => {
                if let Weights::Given(weights, stats) = weights {
                    inference.load(weights, stats)?;
                }
                match (&self.images, weights) {
                    (Images::Held(_), Weights::Given(..)) => inference.outputs()?,
                    (Images::Held(_), Weights::Trained(session)) => {
                        inference.outputs_in(session)?
                    }
                    (Images::Streamed(stream), _) => {
                        let (total, width) = (self.images.rows(), self.augment.shape().len());
                        let mut logits = Vec::with_capacity(total * self.outputs);
                        for first in (0..total).step_by(*slots) {
                            let rows: Vec<u32> =
                                (first as u32..(first + *slots).min(total) as u32).collect();
                            let mut bytes = vec![0; rows.len() * width];
                            stream.fill(&rows, View::Centre, &mut bytes)?;
                            let labels = &stream.labels()[first..first + rows.len()];
                            inference.fill(0, &bytes, labels)?;
                            let part = first..first + rows.len();
                            logits.extend(match weights {
                                Weights::Given(..) => inference.outputs_of(part)?,
                                Weights::Trained(session) => {
                                    inference.outputs_of_in(session, part)?
                                }
                            });
                        }
                        logits
                    }
                }
            }
        };
        Ok(logits.chunks_exact(self.outputs).flat_map(softmax).collect())
    }
}

/// The probability of every class of every image, for each snapshot: `[member][image · classes + class]`.
pub fn classify(
    network: &Network,
    members: &[Snapshot],
    images: &Images,
    augment: &Augment,
    on: Option<&OnCuda>,
) -> Result<Vec<Vec<f64>>> {
    let mut classifier = Classifier::new(network, images, augment, on)?;
    members.iter().map(|m| classifier.probabilities(&m.weights, &m.stats)).collect()
}
