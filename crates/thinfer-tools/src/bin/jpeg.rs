//! How fast images come out of a folder of JPEG files, against the decoder alone.
//!
//! ```sh
//! cargo run --release -p thinfer-tools --bin jpeg -- FOLDER [--images N] [--threads N] [--rounds N] [--json]
//! ```
//!
//! Writes photo-like images of 500 x 375 pixels into FOLDER unless it has some, then measures by
//! turns
//!
//! - decoder: every image decoded whole from memory, nothing else;
//! - pipeline: files read, decoded, cropped at random, resized to 224 x 224, mirrored and handed
//!   over by `Prefetch` in chunks of 128, as in training.
#![expect(clippy::print_stdout, reason = "a table is what this program is for")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use rayon::prelude::*;
use thinfer::config::Config;
use thinfer::data::images::Prefetch;
use thinfer::data::{ImageData, Images, View};
use thinfer_engine::noise::{Key, Stream};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;

const WIDTH: usize = 500;
const HEIGHT: usize = 375;
/// Gives files of about 100 kB, as ImageNet's are.
const QUALITY: u8 = 96;
const CHUNK: usize = 128;
/// How often the images are gone through in a round, so that starting threads does not count.
const PASSES: usize = 4;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

struct Options {
    folder: PathBuf,
    images: usize,
    threads: usize,
    rounds: usize,
    json: bool,
}

fn options() -> Fallible<Options> {
    let mut options =
        Options { folder: PathBuf::new(), images: 512, threads: 2, rounds: 9, json: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut count =
            || -> Fallible<usize> { Ok(arguments.next().ok_or("a number is missing")?.parse()?) };
        match argument.as_str() {
            "--images" => options.images = count()?,
            "--threads" => options.threads = count()?,
            "--rounds" => options.rounds = count()?,
            "--json" => options.json = true,
            folder => options.folder = folder.into(),
        }
    }
    if options.folder.as_os_str().is_empty() {
        return Err("give the folder of the images".into());
    }
    Ok(options)
}

/// Smooth shapes of all sizes, edges, and grain.
fn photo(seed: u64) -> Vec<u8> {
    let key = Key::new(seed, 0, Stream::Inputs);
    let mut grey = vec![0f32; WIDTH * HEIGHT];
    let mut tint = vec![0f32; WIDTH * HEIGHT];
    for (octave, cell) in [128usize, 64, 32, 16, 8, 4, 2].into_iter().enumerate() {
        let (columns, rows) = (WIDTH / cell + 2, HEIGHT / cell + 2);
        let mut grid = vec![0.0; columns * rows];
        for (layer, weight) in [(&mut grey, 30.0), (&mut tint, 12.0)] {
            let step = 2 * octave as u64 + u64::from(weight < 20.0);
            key.normals(step, 0, &mut grid);
            let weight = weight * 0.75f32.powi(octave as i32);
            for (at, value) in layer.iter_mut().enumerate() {
                let (x, y) = (at % WIDTH, at / WIDTH);
                let (fx, fy) = ((x % cell) as f32 / cell as f32, (y % cell) as f32 / cell as f32);
                let corner = y / cell * columns + x / cell;
                let (top, low) = (&grid[corner..corner + 2], &grid[corner + columns..][..2]);
                let mix = |pair: &[f32]| pair[0] + fx * (pair[1] - pair[0]);
                *value += weight * (mix(top) + fy * (mix(low) - mix(top)));
            }
        }
    }
    let slope = 2.0 * key.uniform(100, 0) - 1.0;
    let mut grain = vec![0.0; WIDTH * HEIGHT];
    key.normals(200, 0, &mut grain);
    let pixel = |at: usize| {
        let (x, y) = ((at % WIDTH) as f32, (at / WIDTH) as f32);
        let edge = if (x + slope * y).rem_euclid(170.0) < 60.0 { 40.0 } else { 0.0 };
        let grey = 110.0 + grey[at] + edge + 3.0 * grain[at];
        [grey + tint[at], grey, grey - tint[at]].map(|value| value.clamp(0.0, 255.0) as u8)
    };
    (0..WIDTH * HEIGHT).flat_map(pixel).collect()
}

fn write_images(folder: &Path, images: usize) -> Fallible<()> {
    for class in 0..4 {
        fs::create_dir_all(folder.join(format!("train/{class}")))?;
        fs::create_dir_all(folder.join(format!("val/{class}")))?;
    }
    (0..images + 4).into_par_iter().try_for_each(|at| {
        let part = if at < images { "train" } else { "val" };
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, QUALITY);
        encoder.set_sampling_factor(SamplingFactor::F_2_2);
        encoder.encode(&photo(at as u64), WIDTH as u16, HEIGHT as u16, ColorType::Rgb)?;
        fs::write(folder.join(format!("{part}/{}/{at:05}.jpg", at % 4)), bytes)?;
        Ok(())
    })
}

/// The bytes of all training images.
fn read_images(folder: &Path) -> Fallible<Vec<Vec<u8>>> {
    let mut files = Vec::new();
    for class in fs::read_dir(folder.join("train"))? {
        for file in fs::read_dir(class?.path())? {
            files.push(fs::read(file?.path())?);
        }
    }
    Ok(files)
}

/// Images a second of the decoder alone.
fn decoder(files: &[Vec<u8>], pool: &rayon::ThreadPool) -> Fallible<f64> {
    let begun = Instant::now();
    pool.install(|| {
        (0..PASSES * files.len()).into_par_iter().with_max_len(32).try_for_each_init(
            Vec::new,
            |out: &mut Vec<u8>, at| {
                let file = &files[at % files.len()];
                let mut decoder = JpegDecoder::new(ZCursor::new(&file[..]));
                decoder.decode_headers().map_err(|e| format!("{e:?}"))?;
                out.resize(decoder.output_buffer_size().unwrap_or(0), 0);
                decoder.decode_into(out).map_err(|e| format!("{e:?}"))
            },
        )
    })?;
    Ok((PASSES * files.len()) as f64 / begun.elapsed().as_secs_f64())
}

/// Images a second that arrive as in training.
fn pipeline(data: &ImageData, threads: usize, epoch: u64) -> Fallible<f64> {
    let Images::Streamed(stream) = &data.train else { return Err("the images are small".into()) };
    let key = Key::new(1, 0, Stream::Augment);
    let shuffle = Key { stream: Stream::Shuffle, ..key };
    let order = (0..PASSES as u64)
        .flat_map(|pass| shuffle.permutation(PASSES as u64 * epoch + pass, data.train.rows()))
        .collect();
    let view = View::Random { key, epoch };
    let mut prefetch = Prefetch::new(Arc::clone(stream), order, CHUNK, view, threads)?;
    while prefetch.next()?.is_some() {}
    Ok(prefetch.speed().images_per_second)
}

fn main() -> Fallible<()> {
    let options = options()?;
    if !options.folder.join("train").is_dir() {
        write_images(&options.folder, options.images)?;
    }
    let files = read_images(&options.folder)?;
    let path = format!("data.path={}", options.folder.display());
    let config = Config::parse("", &["data.kind=images".into(), path])?;
    let data = ImageData::load(&config.data, config.seed)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build()?;
    let (mut alone, mut whole) = (Vec::new(), Vec::new());
    for round in 0..options.rounds.max(1) {
        alone.push(decoder(&files, &pool)?);
        whole.push(pipeline(&data, options.threads, round as u64)?);
    }
    let summary = |speeds: &mut Vec<f64>| {
        speeds.sort_by(f64::total_cmp);
        (speeds[speeds.len() / 2], speeds[speeds.len() - 1])
    };
    let ((alone, alone_best), (whole, whole_best)) = (summary(&mut alone), summary(&mut whole));
    let bytes = files.iter().map(Vec::len).sum::<usize>() / files.len().max(1);
    let text = if options.json {
        serde_json::json!({
            "images": files.len(),
            "mean_bytes": bytes,
            "threads": options.threads,
            "rounds": options.rounds,
            "decoder": { "median": alone, "best": alone_best },
            "pipeline": { "median": whole, "best": whole_best },
            "share": { "median": whole / alone, "best": whole_best / alone_best },
        })
        .to_string()
    } else {
        format!(
            "{} images of {WIDTH} x {HEIGHT} pixels, {bytes} bytes on average, {} threads, {} rounds\n\
             images a second    median    best\n\
             decoder alone    {alone:>8.0}{alone_best:>8.0}\n\
             whole pipeline   {whole:>8.0}{whole_best:>8.0}\n\
             share            {:>8.3}{:>8.3}",
            files.len(),
            options.threads,
            options.rounds,
            whole / alone,
            whole_best / alone_best
        )
    };
    println!("{text}");
    Ok(())
}
