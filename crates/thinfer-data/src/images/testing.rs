//! Small image files for tests.

use std::fs;
use std::path::Path;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::{ImageData, ImageSet, Images};
use crate::error::Result;
use crate::settings::DataConfig;

/// Smooth pixels that differ with `seed`.
pub(super) fn pixels(width: usize, height: usize, channels: usize, seed: usize) -> Vec<u8> {
    let value = |at: usize| {
        let (pixel, c) = (at / channels, at % channels);
        let (x, y) = (pixel % width, pixel / width);
        let wave =
            ((x + 11 * seed) as f32 / 9.0).sin() + ((y + 5 * seed) as f32 / 7.0 + c as f32).cos();
        (127.5 + 60.0 * wave) as u8
    };
    (0..width * height * channels).map(value).collect()
}

/// A JPEG file with colours at half the resolution, as cameras write.
pub(super) fn jpeg(width: usize, height: usize, seed: usize) -> Vec<u8> {
    jpeg_as(width, height, seed, ColorType::Rgb, false)
}

pub(super) fn jpeg_as(
    width: usize,
    height: usize,
    seed: usize,
    color: ColorType,
    progressive: bool,
) -> Vec<u8> {
    let channels = match color {
        ColorType::Luma => 1,
        ColorType::Cmyk => 4,
        _ => 3,
    };
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 95);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    encoder.set_progressive(progressive);
    let pixels = pixels(width, height, channels, seed);
    encoder.encode(&pixels, width as u16, height as u16, color).unwrap();
    bytes
}

/// A PNG file.
pub(super) fn png(width: usize, height: usize, color: png::ColorType, seed: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&pixels(width, height, color.samples(), seed)).unwrap();
    writer.finish().unwrap();
    bytes
}

/// Writes a file with the folders above it.
pub(super) fn write(root: &Path, name: &str, bytes: &[u8]) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A tar file.
pub(super) fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append_data(&mut header, name, *bytes).unwrap();
    }
    archive.into_inner().unwrap()
}

/// Loads images of a kind from a folder, with settings such as `image_size = 16`.
pub(super) fn load(kind: &str, path: &Path, settings: &[&str]) -> Result<ImageData> {
    let mut all = serde_json::to_value(DataConfig::default()).unwrap();
    all["kind"] = kind.into();
    all["path"] = path.to_str().unwrap().into();
    for setting in settings {
        let (key, value) = setting.split_once('=').unwrap();
        all[key.trim()] = serde_json::from_str(value).unwrap();
    }
    ImageData::load(&serde_json::from_value(all).unwrap(), 1)
}

/// Images that must be in memory.
pub(super) fn held(images: &Images) -> &ImageSet {
    match images {
        Images::Held(set) => set,
        Images::Streamed(_) => panic!("the images are not held in memory"),
    }
}
