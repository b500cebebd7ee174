//! From the bytes of a JPEG or PNG file to pixels.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::memory::human_bytes;

/// Pixels that an image may have: 400 MB decoded.
const MOST_PIXELS: usize = 1 << 27;

/// Bytes that an image file may have.
pub(super) const MOST_BYTES: u64 = 512 << 20;

/// Refuses a file that is too large to be an image, before it is read.
pub(super) fn check_len(bytes: u64) -> Result<(), String> {
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    let (found, most) = (human_bytes(bytes), human_bytes(MOST_BYTES));
    Err(format!("has {found}, and an image file may have {most} at most"))
}

/// What the first bytes of an image say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) width: usize,
    pub(super) height: usize,
    /// Whether the file has no colours.
    pub(super) grey: bool,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Jpeg {
        /// Where the height is written, and the rows that are decoded together, where rows come
        /// one after another in the file.
        cut: Option<(usize, usize)>,
    },
    Png,
}

impl Header {
    /// Looks at the bytes of a file, whatever its name. The problem is in words.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let header = match bytes {
            [0xff, 0xd8, ..] => jpeg_header(bytes)?,
            [0x89, b'P', b'N', b'G', ..] => {
                let [.., a, b, c, d, e, f, g, h] =
                    bytes.first_chunk::<24>().ok_or("is truncated")?;
                let size = |bytes: [u8; 4]| u32::from_be_bytes(bytes) as usize;
                let (width, height) = (size([*a, *b, *c, *d]), size([*e, *f, *g, *h]));
                // The kind of pixels: 0 is grey, 4 is grey with transparency.
                let grey = matches!(bytes.get(25), Some(0 | 4));
                Header { width, height, grey, format: Format::Png }
            }
            [] => return Err("is empty".into()),
            _ => return Err("is neither JPEG nor PNG".into()),
        };
        match header.width.checked_mul(header.height) {
            Some(1..=MOST_PIXELS) => Ok(header),
            _ => Err(format!("claims to have {} x {} pixels", header.width, header.height)),
        }
    }

    /// Decodes to red, green and blue, at least down to row `bottom`, and gives the rows that
    /// `out` then has.
    ///
    /// A baseline JPEG is decoded no further than needed: a smaller height is written into the
    /// header, so that the decoder stops there. Grey, CMYK and transparent images become RGB, as
    /// with Pillow's `convert("RGB")`.
    pub(super) fn decode(
        &self,
        bytes: &mut [u8],
        bottom: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, String> {
        let mut rows = self.height;
        if let Format::Jpeg { cut: Some((at, together)) } = self.format {
            // Colours at half the resolution are smoothed with those of the two rows below.
            rows = (bottom + 2).div_ceil(together).saturating_mul(together).min(self.height);
            bytes[at..at + 2].copy_from_slice(&(rows as u16).to_be_bytes());
        }
        out.resize(self.width * rows * 3, 0);
        let bytes = &*bytes;
        // Decoders of foreign files may panic; that is one more unreadable image.
        catch_unwind(AssertUnwindSafe(|| match self.format {
            Format::Jpeg { .. } => decode_jpeg(bytes, out),
            Format::Png => decode_png(bytes, out),
        }))
        .unwrap_or_else(|_| Err("made the decoder stop".into()))?;
        Ok(rows)
    }
}

/// Walks over the segments of a JPEG file up to its image.
fn jpeg_header(bytes: &[u8]) -> Result<Header, String> {
    const TRUNCATED: &str = "is truncated";
    let mut at = 2;
    let mut frame = None;
    loop {
        let byte = |at: usize| bytes.get(at).copied().ok_or(TRUNCATED);
        if byte(at)? != 0xff {
            return Err("has no marker where one must be".into());
        }
        let marker = byte(at + 1)?;
        // Any number of fill bytes may come before a marker.
        if marker == 0xff {
            at += 1;
            continue;
        }
        if marker == 0x01 || (0xd0..=0xd7).contains(&marker) {
            at += 2;
            continue;
        }
        let len = usize::from(u16::from_be_bytes([byte(at + 2)?, byte(at + 3)?]));
        let segment = bytes.get(at + 4..at + 2 + len.max(2)).ok_or(TRUNCATED)?;
        match marker {
            0xc0..=0xc2 => {
                let [_, h1, h2, w1, w2, components, rest @ ..] = segment else {
                    return Err(TRUNCATED.into());
                };
                let (_, factors) = (components, rest.iter().skip(1).step_by(3));
                let vertical = factors.map(|factor| usize::from(factor & 15)).max().unwrap_or(0);
                let size = |high: u8, low: u8| usize::from(u16::from_be_bytes([high, low]));
                let (height, width) = (size(*h1, *h2), size(*w1, *w2));
                frame = Some((marker, at + 5, height, width, *components, 8 * vertical));
            }
            0xd9 => return Err("ends before its image".into()),
            // The image itself.
            0xda => {
                let Some((kind, position, height, width, components, together)) = frame else {
                    return Err("has an image without a size".into());
                };
                let image = &bytes[at + 2 + len..];
                // Within the image this pair of bytes stands for its end and nothing else.
                if image.windows(2).rposition(|pair| pair == [0xff, 0xd9]).is_none() {
                    return Err(TRUNCATED.into());
                }
                // Progressive images, and those with one colour after another, have rows of the
                // top all over the file.
                let whole = kind != 0xc2 && segment.first() == Some(&components) && together > 0;
                let cut = whole.then_some((position, together));
                let grey = components == 1;
                return Ok(Header { width, height, grey, format: Format::Jpeg { cut } });
            }
            _ => {}
        }
        at += 2 + len.max(2);
    }
}

fn decode_jpeg(bytes: &[u8], out: &mut [u8]) -> Result<(), String> {
    let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_into(out).map_err(|error| format!("cannot be decoded ({error:?})"))
}

fn decode_png(bytes: &[u8], out: &mut [u8]) -> Result<(), String> {
    let unreadable = |error: png::DecodingError| format!("cannot be decoded ({error})");
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(unreadable)?;
    let size = reader.output_buffer_size().ok_or("is too large")?;
    let mut pixels = vec![0; size];
    let info = reader.next_frame(&mut pixels).map_err(unreadable)?;
    let pixels = &pixels[..info.buffer_size()];
    let channels = info.color_type.samples();
    for (out, pixel) in out.chunks_exact_mut(3).zip(pixels.chunks_exact(channels)) {
        match pixel {
            [grey] | [grey, _] => out.fill(*grey),
            [red, green, blue, ..] => out.copy_from_slice(&[*red, *green, *blue]),
            [] => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use jpeg_encoder::ColorType;
    use proptest::prelude::*;

    use super::super::testing::{jpeg, jpeg_as, pixels, png};
    use super::*;

    fn whole(bytes: &[u8]) -> Result<(Header, Vec<u8>), String> {
        let mut bytes = bytes.to_vec();
        let header = Header::read(&bytes)?;
        let mut out = Vec::new();
        let rows = header.decode(&mut bytes, header.height, &mut out)?;
        assert_eq!((rows, out.len()), (header.height, header.width * header.height * 3));
        Ok((header, out))
    }

    /// The largest distance between bytes.
    fn apart(one: &[u8], other: &[u8]) -> u8 {
        one.iter().zip(other).map(|(a, b)| a.abs_diff(*b)).max().unwrap()
    }

    #[test]
    fn colours_come_out_as_they_went_in() {
        let (header, out) = whole(&jpeg(50, 37, 1)).unwrap();
        assert_eq!((header.width, header.height), (50, 37));
        assert!(apart(&out, &pixels(50, 37, 3, 1)) < 24);
        assert_eq!(whole(&png(50, 37, png::ColorType::Rgb, 2)).unwrap().1, pixels(50, 37, 3, 2));
    }

    #[test]
    fn grey_transparent_and_cmyk_images_become_rgb() {
        let grey: Vec<u8> = pixels(20, 9, 1, 1).iter().flat_map(|v| [*v; 3]).collect();
        assert!(apart(&whole(&jpeg_as(20, 9, 1, ColorType::Luma, false)).unwrap().1, &grey) < 8);
        assert_eq!(whole(&png(20, 9, png::ColorType::Grayscale, 1)).unwrap().1, grey);
        let alpha = pixels(20, 9, 4, 3);
        let opaque: Vec<u8> = alpha.chunks(4).flat_map(|p| p[..3].to_vec()).collect();
        assert_eq!(whole(&png(20, 9, png::ColorType::Rgba, 3)).unwrap().1, opaque);
        let pairs = pixels(20, 9, 2, 3);
        let greys: Vec<u8> = pairs.chunks(2).flat_map(|p| [p[0]; 3]).collect();
        assert_eq!(whole(&png(20, 9, png::ColorType::GrayscaleAlpha, 3)).unwrap().1, greys);
        // Full black ink is black, no ink is white.
        let cmyk = whole(&jpeg_as(20, 9, 1, ColorType::Cmyk, false)).unwrap().1;
        assert_eq!(cmyk.len(), 20 * 9 * 3);
    }

    #[test]
    fn stopping_early_changes_no_row_that_is_needed() {
        for (width, height) in [(50, 100), (33, 47), (16, 16)] {
            for color in [ColorType::Rgb, ColorType::Luma] {
                let file = jpeg_as(width, height, 4, color, false);
                let (header, all) = whole(&file).unwrap();
                for bottom in 1..=height {
                    let (mut bytes, mut out) = (file.clone(), Vec::new());
                    let rows = header.decode(&mut bytes, bottom, &mut out).unwrap();
                    let needed = 3 * width * bottom;
                    assert!(rows >= bottom && out[..needed] == all[..needed], "row {bottom}");
                }
            }
        }
        let (mut bytes, mut out) = (jpeg(50, 100, 4), Vec::new());
        let rows = Header::read(&bytes).unwrap().decode(&mut bytes, 10, &mut out).unwrap();
        assert_eq!(rows, 16);
    }

    #[test]
    fn progressive_images_are_decoded_whole() {
        let file = jpeg_as(50, 100, 4, ColorType::Rgb, true);
        let header = Header::read(&file).unwrap();
        assert_eq!(header.format, Format::Jpeg { cut: None });
        let (_, out) = whole(&file).unwrap();
        assert!(apart(&out, &pixels(50, 100, 3, 4)) < 24);
    }

    #[test]
    fn truncated_and_foreign_files_are_refused() {
        let refused = |bytes: &[u8]| whole(bytes).unwrap_err();
        let (jpeg, png) = (jpeg(50, 37, 1), png(50, 37, png::ColorType::Rgb, 1));
        for len in [2, 10, 100, jpeg.len() / 2, jpeg.len() - 1] {
            assert_eq!(refused(&jpeg[..len]), "is truncated", "{len} bytes");
        }
        assert_eq!(refused(&png[..20]), "is truncated");
        assert!(refused(&png[..png.len() / 2]).contains("cannot be decoded"));
        assert_eq!(refused(b""), "is empty");
        assert_eq!(refused(b"GIF89a"), "is neither JPEG nor PNG");
        let mut huge = png;
        huge[16..24].fill(0xff);
        assert!(refused(&huge).contains("claims to have"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..3) {
            let head: &[u8] = match kind {
                0 => &[0xff, 0xd8],
                1 => b"\x89PNG\r\n\x1a\n",
                _ => &[],
            };
            let _ = Header::read(&[head, &bytes[..]].concat());
        }

        #[test]
        fn a_damaged_file_is_an_image_or_an_error(at in 2usize..2000, byte: u8) {
            let mut bytes = jpeg(24, 40, 5);
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = Header::read(&bytes)
                // A changed size may ask for more memory than a test should take.
                .and_then(|header| match header.width * header.height {
                    0..100_000 => header.decode(&mut bytes, 20, &mut Vec::new()),
                    _ => Ok(0),
                });
        }
    }
}
