//! Class probabilities of images, on the cores or on a GPU.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use thinfer_data::images::image_rows;
use thinfer_data::{Error, Result};
use thinfer_data::{Images, View};
use thinfer_engine::augment::Augment;
use thinfer_engine::cuda::{Inference, Session, Source};
use thinfer_engine::{Draw, Network, Passes, Plan};

use crate::device::OnCuda;
use crate::posterior::{Snapshot, softmax};

/// Images that go through the network at once on the CPU, at most, and the bytes that they may
/// take: where all do not fit, fewer go.
const CPU_ROWS: usize = 128;
const CPU_BYTES: u64 = 1 << 30;
/// Images that go through the network at once on a GPU, and as many of those that have more numbers
/// than this.
const GPU_ROWS: usize = 1024;
const GPU_ROWS_OF_LARGE: usize = 512;
const LARGE: usize = 3 * 64 * 64;
/// Rows of outputs that a thread turns into probabilities, at least.
const ROWS_OF_A_THREAD: usize = 256;
/// Bytes of images that are decoded at a time, where they are not held in memory.
const DECODED: usize = 256 << 20;

/// Set by nobody.
static NEVER: AtomicBool = AtomicBool::new(false);

/// Says which class images belong to, for one network and any weights.
pub struct Classifier {
    images: Images,
    augment: Augment,
    outputs: usize,
    /// What a prediction is the mean over: members and draws of random scales, or the network once.
    views: Vec<Draw>,
    place: Place,
}

enum Place {
    /// With the images that go through it at once.
    Cpu(Box<Plan>, usize),
    Cuda {
        inference: Box<Inference>,
        /// Images that the device holds at a time.
        slots: usize,
        /// Whether the device is at work for [`Classifier::probabilities_in`].
        begun: bool,
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
            None => {
                let rows = rows_at_once(network, images.rows());
                Place::Cpu(Box::new(Plan::for_predictions(network, rows)?), rows)
            }
            Some(on) => {
                let numbers = augment.shape().len();
                let batch = if numbers > LARGE { GPU_ROWS_OF_LARGE } else { GPU_ROWS };
                let fit = DECODED / numbers / batch * batch;
                let slots = fit.clamp(batch, images.rows().max(batch));
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
                let plan = Inference::new(&on.gpu, network, source, batch, on.precision)?;
                Place::Cuda { inference: Box::new(plan), slots, begun: false }
            }
        };
        let views = match network.mixture() {
            Some(mixture) => mixture.views().collect(),
            None => vec![Draw::default()],
        };
        Ok(Self { images: images.clone(), augment, outputs: network.output_len(), views, place })
    }

    /// The probability of every class, image by image: where members share the network, the mean
    /// over them and their draws.
    pub fn probabilities(&mut self, weights: &[f32], stats: &[f32]) -> Result<Vec<f64>> {
        self.probabilities_until(weights, stats, &NEVER)
    }

    /// The same, but stops with [`Error::Interrupted`] where `stop` is set.
    pub(crate) fn probabilities_until(
        &mut self,
        weights: &[f32],
        stats: &[f32],
        stop: &AtomicBool,
    ) -> Result<Vec<f64>> {
        Ok(self.run(Weights::Given(weights, stats), false, stop)?.concat())
    }

    /// The same for each member and draw by itself, of which a network without members has one.
    pub fn views(&mut self, weights: &[f32], stats: &[f32]) -> Result<Vec<Vec<f64>>> {
        self.run(Weights::Given(weights, stats), true, &NEVER)
    }

    /// The same for the weights that a session trains.
    pub(crate) fn probabilities_in(&mut self, session: &Session) -> Result<Vec<f64>> {
        if let Place::Cuda { inference, begun: begun @ true, .. } = &mut self.place {
            *begun = false;
            let mut table = vec![0.0; self.images.rows() * self.outputs];
            add(&mut table, &inference.finish()?, self.outputs, 1);
            return Ok(table);
        }
        Ok(self.run(Weights::Trained(session), false, &NEVER)?.concat())
    }

    /// Lets the device begin with [`Classifier::probabilities_in`], where it has all that it needs,
    /// and does not wait for it. The weights must not change until then.
    pub(crate) fn begin_in(&mut self, session: &Session) -> Result<()> {
        if let (Place::Cuda { inference, begun, .. }, Images::Held(_), [view]) =
            (&mut self.place, &self.images, &self.views[..])
        {
            inference.set_draw(*view)?;
            inference.start_in(session)?;
            *begun = true;
        }
        Ok(())
    }

    /// One table for each view, or one with their mean.
    fn run(
        &mut self,
        weights: Weights<'_>,
        apart: bool,
        stop: &AtomicBool,
    ) -> Result<Vec<Vec<f64>>> {
        let go_on = || {
            let stopped = stop.load(Ordering::Relaxed);
            if stopped { Err(Error::Interrupted("memory".into())) } else { Ok(()) }
        };
        let (total, outputs, views) = (self.images.rows(), self.outputs, &self.views);
        let (tables, share) = if apart { (views.len(), 1) } else { (1, views.len()) };
        let mut tables = vec![vec![0.0; total * outputs]; tables];
        match &mut self.place {
            Place::Cpu(plan, at_once) => {
                let Weights::Given(weights, stats) = weights else { return Ok(tables) };
                let mut logits = vec![0.0; *at_once * outputs];
                for first in (0..total).step_by(*at_once) {
                    let rows: Vec<u32> =
                        (first as u32..(first + *at_once).min(total) as u32).collect();
                    let data = image_rows(&self.images, &self.augment, View::Centre, &rows)?;
                    let logits = &mut logits[..rows.len() * outputs];
                    for (at, view) in views.iter().enumerate() {
                        go_on()?;
                        plan.set_draw(Draw { first_row: first, ..*view });
                        plan.forward(weights, stats, &data, 0..rows.len(), logits)?;
                        add(&mut tables[at / share][first * outputs..], logits, outputs, share);
                    }
                }
            }
            Place::Cuda { inference, slots, .. } => {
                if let Weights::Given(weights, stats) = weights {
                    inference.load(weights, stats)?;
                }
                let width = self.augment.shape().len();
                let at_once = match &self.images {
                    Images::Held(_) => total.max(1),
                    Images::Streamed(_) => *slots,
                };
                for first in (0..total).step_by(at_once) {
                    let part = first..(first + at_once).min(total);
                    if let Images::Streamed(stream) = &self.images {
                        let rows: Vec<u32> = part.clone().map(|row| row as u32).collect();
                        let mut bytes = vec![0; rows.len() * width];
                        stream.fill(&rows, View::Centre, &mut bytes)?;
                        inference.fill(0, &bytes, &stream.labels()[part.clone()])?;
                    }
                    for (at, view) in views.iter().enumerate() {
                        go_on()?;
                        inference.set_draw(*view)?;
                        let logits = match weights {
                            Weights::Given(..) => inference.outputs_of(part.clone())?,
                            Weights::Trained(session) => {
                                inference.outputs_of_in(session, part.clone())?
                            }
                        };
                        add(&mut tables[at / share][first * outputs..], &logits, outputs, share);
                    }
                }
            }
        }
        Ok(tables)
    }
}

/// How many of `images` images go through a network at once on the CPU.
pub fn rows_at_once(network: &Network, images: usize) -> usize {
    let fits = |rows| Plan::bytes_of(network, rows, Passes::Forward) <= CPU_BYTES;
    largest(CPU_ROWS.min(images), fits).unwrap_or(1)
}

/// Adds the probabilities of one of `share` views, row by row, to their mean.
fn add(mean: &mut [f64], logits: &[f32], outputs: usize, share: usize) {
    let rows = mean.par_chunks_exact_mut(outputs).zip(logits.par_chunks_exact(outputs));
    rows.with_min_len(ROWS_OF_A_THREAD).for_each(|(mean, logits)| {
        mean.iter_mut().zip(softmax(logits)).for_each(|(mean, p)| *mean += p / share as f64);
    });
}

/// The probability of every class of every image, `[image · classes + class]`: for each snapshot in
/// turn as many tables as it has views, of which there are several where members share a network.
pub fn classify<'a>(
    network: &Network,
    members: impl IntoIterator<Item = &'a Snapshot>,
    images: &Images,
    augment: &Augment,
    on: Option<&OnCuda>,
) -> Result<Vec<Vec<f64>>> {
    let mut classifier = Classifier::new(network, images, augment, on)?;
    let mut tables = Vec::new();
    for member in members {
        tables.extend(classifier.views(&member.weights, &member.stats)?);
    }
    Ok(tables)
}

/// The largest number from 1 to `most` that fits, if any does.
pub fn largest(most: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let (mut fitting, mut beyond) = (0, most + 1);
    while fitting + 1 < beyond {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            beyond = middle;
        }
    }
    (fitting > 0).then_some(fitting)
}
