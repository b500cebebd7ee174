//! What is chosen for a folder of images.

use std::path::Path;
use std::time::Instant;

use thinfer_core::device::Device;
use thinfer_data::images::{Broken, Survey};
use thinfer_data::memory::available_memory;
use thinfer_data::{Data, Error, ImageData, ImageSet, Images, Result, View};
use thinfer_engine::augment::Augment;
use thinfer_engine::noise::{Key, Stream};
use thinfer_run::config::Config;

use super::estimate::{self, Estimate};
use super::{Choices, Proposal, Wish, is_set, mirrored, quoted, steps};

/// Minutes, where none are given.
const MINUTES: f64 = 3.0;
/// Sides of the network's images, of which the largest that fits is taken.
const SIDES: [usize; 3] = [64, 48, 32];
/// Smaller images than this are not enlarged less.
const LEAST_SIDE: usize = 8;
/// Images of one size with at most so many pixels a side are taken as they are.
const LARGEST_SIDE: usize = 64;

/// Epochs with which a larger size is worth its time, and those that bring no more.
const GOOD_EPOCHS: f64 = 40.0;
const MOST_EPOCHS: usize = 110;
/// Epochs that a sensible result needs at least.
const FEWEST_EPOCHS: usize = 10;
/// With fewer images to learn from, batches are smaller.
const FEW_IMAGES: usize = 2000;

/// Images that are kept in memory may take such a part of it, and so many bytes.
const MEMORY_SHARE: u64 = 4;
const MOST_BYTES: u64 = 1 << 30;
/// Images of a trial.
const TRIAL_IMAGES: usize = 256;
/// A prediction against a gradient.
const FORWARD: f64 = 1.0 / 3.0;
/// The most frequent class against the rarest, from which it is told.
const UNEVEN: usize = 5;

/// Chooses settings for a folder of images.
pub fn of_images(path: &Path, wish: &Wish) -> Result<Proposal> {
    let survey = Survey::of(path)?;
    let seconds = 60.0 * wish.minutes.unwrap_or(MINUTES);
    let mut choices = Choices::default();
    choices.add("data.kind", "\"images\"", "");
    let text = path.to_str().ok_or_else(|| {
        Error::config(
            path.display().to_string(),
            "is no text that a configuration could hold; rename it",
        )
    })?;
    choices.add("data.path", quoted(text), "");
    let mut lines = vec![about(path, &survey)];
    let mut notices = Vec::new();
    network(&mut choices, &survey, wish);
    let found = Found::look(&choices, &survey, wish)?;
    let mirroring = mirrored::look(&found.train, &found.test);
    let flip = mirroring.is_none();
    choices.add("data.flip", flip.to_string(), mirroring.unwrap_or_default());
    let config = choices.config(&wish.set)?;
    let costs = found.costs(&config, wish.device)?;
    // The largest size that leaves enough epochs.
    let of_side = |side: usize| costs.at(side, config.data.image_size);
    let fits = |side: &&usize| of_side(**side).room(seconds) >= GOOD_EPOCHS;
    let sides = sides(&survey);
    let side = match config.data.image_size {
        given if is_set(&wish.set, "data.image_size") => given,
        _ => *sides.iter().find(fits).or(sides.last()).unwrap_or(&LEAST_SIDE),
    };
    choices.set("data.image_size", side.to_string(), why_size(&survey, side));
    choices.add("data.crop_padding", (side / 8).to_string(), "an eighth of the side");
    if found.holds(side) {
        choices.add("data.hold", "true", "decoded once: that takes most of the time otherwise");
    }
    let costs = of_side(side);
    let room = costs.room(seconds);
    let epochs = steps(room).clamp(FEWEST_EPOCHS, MOST_EPOCHS);
    choices.add(
        "train.epochs",
        epochs.to_string(),
        "as many as the time has room for, in coarse steps",
    );
    let epochs = choices.config(&wish.set)?.train.epochs;
    schedule(&mut choices, epochs);
    let config = choices.config(&wish.set)?;
    let estimate = costs.run(config.train.epochs);
    lines.push(described(&config, epochs));
    if room < FEWEST_EPOCHS as f64 {
        notices.push(format!(
            "{} images are many for {} on this machine, so these are only {epochs} epochs of small images, in about {estimate}; for {} epochs give `--minutes {}`, or use a GPU",
            survey.images(),
            estimate::duration(seconds),
            GOOD_EPOCHS,
            (costs.run(GOOD_EPOCHS as usize).seconds / 60.0).ceil()
        ));
    }
    Ok(Proposal {
        choices: choices.with(&wish.set),
        config,
        lines,
        notices,
        estimate: Some(estimate),
    })
}

/// What the folder is.
fn about(path: &Path, survey: &Survey) -> String {
    let size = match survey.one_size {
        Some((width, height)) => format!("{width} x {height} pixels each"),
        None => format!("of different sizes, about {} pixels", survey.side),
    };
    let grey = if survey.grey { "grey " } else { "" };
    let (most, least) =
        (survey.counts.iter().max().unwrap_or(&0), survey.counts.iter().min().unwrap_or(&0));
    let uneven = if *most >= UNEVEN * (*least).max(1) {
        format!("; from {least} to {most} of a class, so rare ones are learned less")
    } else {
        String::new()
    };
    let test = match survey.test {
        Some(test) => format!(" and {test} to test on"),
        None => ", of which a fifth is for testing".to_owned(),
    };
    format!(
        "{}: {} {grey}images of {} classes{test}, {size}{uneven}",
        path.display(),
        survey.images(),
        survey.classes.len()
    )
}

/// Sizes of the network's images, the largest first.
fn sides(survey: &Survey) -> Vec<usize> {
    match survey.one_size {
        Some((width, height))
            if width == height && (LEAST_SIDE..=LARGEST_SIDE).contains(&width) =>
        {
            vec![width]
        }
        _ => {
            let mut sides: Vec<usize> =
                SIDES.into_iter().filter(|side| *side <= survey.side).collect();
            if sides.is_empty() {
                sides.push(survey.side.max(LEAST_SIDE));
            }
            sides
        }
    }
}

fn why_size(survey: &Survey, side: usize) -> &'static str {
    match survey.one_size {
        Some(size) if size == (side, side) => "that of the images",
        _ => "the largest that leaves time for enough epochs",
    }
}

/// Network and method, with the smallest size to begin with.
fn network(choices: &mut Choices, survey: &Survey, wish: &Wish) {
    let name = match wish.device {
        Device::Cpu => "convnet",
        Device::Cuda(_) => "resnet18-cifar",
    };
    let least = sides(survey).last().copied().unwrap_or(LEAST_SIDE);
    choices.add("data.image_size", least.to_string(), "");
    choices.add("model.name", quoted(name), "as large as the device has time for");
    choices.add("method.kind", "\"em-mcmc\"", "samples and prunes at once");
    let batch = if survey.images() < FEW_IMAGES { 32 } else { 64 };
    choices.add("train.batch", batch.to_string(), "");
}

/// The length of the run and of its parts.
fn schedule(choices: &mut Choices, epochs: usize) {
    choices.add("prune.target", "0.5", "a half costs next to no accuracy in a short run");
    choices.add("prune.warm_up_epochs", (epochs / 5).to_string(), "a fifth of the run");
    choices.add(
        "prune.freeze_after_epochs",
        (epochs * 3 / 4).to_string(),
        "so that the samples share a mask",
    );
    choices.add("schedule.step_size.cycles", "1", "a short run has no time for restarts");
    choices.add("train.samples_per_cycle", "4", "");
    let every = epochs.div_ceil(10).max(1);
    choices.add("train.evaluate_every_epochs", every.to_string(), "ten times in the run");
}

/// What was chosen, in a line.
fn described(config: &Config, epochs: usize) -> String {
    let flip = if config.data.flip == Some(false) { "not mirrored" } else { "mirrored" };
    format!(
        "method: {} on {side} x {side} pixels, {flip}, EM-MCMC for {epochs} epochs; prunes {:.0} % of the parameters",
        config.model.name,
        100.0 * config.prune.target.unwrap_or(0.0),
        side = config.data.image_size,
    )
}

/// What was looked at: some images in the smallest size, and how long they take to decode.
struct Found {
    train: ImageSet,
    test: ImageSet,
    classes: Vec<String>,
    augment: Augment,
    images: (usize, usize),
    /// Seconds to decode an image, on all cores; 0 where they are in memory.
    decoding: f64,
    is_streamed: bool,
}

impl Found {
    fn look(choices: &Choices, survey: &Survey, wish: &Wish) -> Result<Self> {
        let config = choices.config(&wish.set)?;
        let data = ImageData::load(&config.data, config.seed)?;
        let images = (data.train.rows(), data.test.rows());
        let started = Instant::now();
        let train = some(&data.train, TRIAL_IMAGES.max(20 * survey.classes.len()))?;
        let decoding = started.elapsed().as_secs_f64() / train.labels().len().max(1) as f64;
        let is_streamed = matches!(data.train, Images::Streamed(_));
        let test = some(&data.test, TRIAL_IMAGES)?;
        Ok(Self {
            train,
            test,
            classes: data.classes,
            augment: data.augment,
            images,
            decoding: if is_streamed { decoding } else { 0.0 },
            is_streamed,
        })
    }

    /// Whether images of this size are kept in memory that would not be without being asked.
    fn holds(&self, side: usize) -> bool {
        let bytes = ((self.images.0 + self.images.1) * side * side * 3) as u64;
        let room = available_memory().map_or(MOST_BYTES, |memory| memory / MEMORY_SHARE);
        self.is_streamed && bytes <= room.min(MOST_BYTES)
    }

    /// Times a few steps of the run in the smallest size.
    fn costs(&self, config: &Config, device: Device) -> Result<Costs> {
        let few = |set: &ImageSet, count: usize| -> Result<ImageSet> {
            let count = count.min(set.labels().len());
            let bytes = set.bytes()[..count * set.shape().len()].to_vec();
            ImageSet::new(set.shape(), bytes, set.labels()[..count].to_vec())
        };
        let trained = few(&self.train, TRIAL_IMAGES)?;
        let rows = trained.labels().len();
        let data = ImageData {
            train: Images::Held(trained.into()),
            test: Images::Held(few(&self.test, 1)?.into()),
            classes: self.classes.clone(),
            augment: self.augment.clone(),
            notes: Vec::new(),
            unreadable: Broken::default(),
            fingerprint: 0,
        };
        let epoch = estimate::image_epoch(config, &Data::Images(data), device)?;
        Ok(Costs {
            image: epoch / rows.max(1) as f64,
            images: self.images,
            decoding: self.decoding,
            held: self.holds(config.data.image_size) || !self.is_streamed,
        })
    }
}

/// Some images, spread evenly over all of them.
fn some(images: &Images, count: usize) -> Result<ImageSet> {
    let all = images.rows();
    let count = count.min(all);
    // Rows come class by class, and a trial wants all classes.
    let order = Key::new(1, 0, Stream::Split).permutation(0, all);
    let rows: Vec<u32> = order[..count].to_vec();
    let (shape, labels) = (images.shape(), images.labels());
    let of_rows = rows.iter().map(|row| labels[*row as usize]).collect();
    let mut bytes = vec![0; count * shape.len()];
    match images {
        Images::Held(set) => {
            for (row, out) in rows.iter().zip(bytes.chunks_exact_mut(shape.len())) {
                out.copy_from_slice(set.image(*row as usize));
            }
        }
        Images::Streamed(stream) => stream.fill(&rows, View::Centre, &mut bytes)?,
    }
    ImageSet::new(shape, bytes, of_rows)
}

/// What parts of a run take.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// Seconds to learn from an image once, without decoding it.
    image: f64,
    images: (usize, usize),
    decoding: f64,
    /// Whether images are decoded once and not in every epoch.
    held: bool,
}

/// Times that test images are predicted in a run: ten on the way, four samples at its end, and the
/// gradients that tell the temperature.
const TESTED: f64 = 20.0;
/// Report and the rest, about.
const FIXED_SECONDS: f64 = 2.0;

impl Costs {
    /// The same for images of another size: the work is that of their pixels.
    fn at(self, side: usize, measured: usize) -> Self {
        let larger = (side * side) as f64 / (measured * measured).max(1) as f64;
        Self { image: self.image * larger, ..self }
    }

    fn epoch(&self) -> f64 {
        let decoding = if self.held { 0.0 } else { self.decoding };
        self.images.0 as f64 * (self.image + decoding)
    }

    /// What does not depend on the epochs: each image is decoded, test images twice.
    fn fixed(&self) -> f64 {
        let (train, test) = (self.images.0 as f64, self.images.1 as f64);
        let once = if self.held { train + 2.0 * test } else { test };
        FIXED_SECONDS + once * self.decoding + TESTED * test * self.image * FORWARD
    }

    /// Epochs that fit.
    fn room(&self, seconds: f64) -> f64 {
        ((seconds - self.fixed()) / self.epoch()).max(0.0)
    }

    fn run(&self, epochs: usize) -> Estimate {
        Estimate::fixed(self.fixed() + epochs as f64 * self.epoch())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey(side: usize, one_size: Option<(usize, usize)>) -> Survey {
        Survey {
            classes: vec!["a".into(), "b".into()],
            counts: vec![20, 100],
            test: None,
            side,
            one_size,
            grey: false,
        }
    }

    #[test]
    fn small_images_keep_their_size_and_others_get_one_that_fits() {
        assert_eq!(sides(&survey(28, Some((28, 28)))), [28]);
        assert_eq!(sides(&survey(28, None)), [28]);
        assert_eq!(sides(&survey(50, None)), [48, 32]);
        assert_eq!(sides(&survey(300, Some((400, 300)))), [64, 48, 32]);
        assert_eq!(sides(&survey(4, None)), [8]);
    }

    #[test]
    fn the_folder_is_described() {
        let told = about(Path::new("photos"), &survey(300, None));
        assert_eq!(
            told,
            "photos: 120 images of 2 classes, of which a fifth is for testing, of different sizes, about 300 pixels; from 20 to 100 of a class, so rare ones are learned less"
        );
    }

    #[test]
    fn work_grows_with_pixels_and_epochs() {
        let costs = Costs { image: 0.001, images: (1000, 100), decoding: 0.01, held: true };
        assert!((costs.at(64, 32).epoch() - 4.0 * costs.epoch()).abs() < 1e-12);
        let streamed = Costs { held: false, ..costs };
        assert!(streamed.epoch() > 10.0 * costs.epoch());
        let room = costs.room(60.0);
        assert!((costs.run(room as usize).seconds - 60.0).abs() < costs.epoch());
    }
}
