//! A few test images with what the samples say about them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use thinfer_data::{Error, Result};
use thinfer_engine::Shape;
use thinfer_run::images::Reason;

use super::super::page::{Section, element, escape, number, paragraph, percent, section};
use super::{ImageReport, Sample};

/// Classes shown for an image, most likely first.
const CLASSES: usize = 3;

/// The section about single images.
pub(super) fn section_of(report: &ImageReport<'_>) -> Result<Section> {
    if report.samples.is_empty() {
        let html = paragraph("There are no test images to show.");
        return Ok(section("samples", "Single images", html));
    }
    let mut html = paragraph(
        "A bar is the probability of a class, averaged over the samples of the posterior; the line \
         in it reaches from the smallest to the largest over the samples. The true class has the \
         first colour. MI is the mutual \
         information in nats: how much they disagree.",
    );
    for (reason, title) in [
        (Reason::SurelyRight, "Sure and right"),
        (Reason::SurelyWrong, "Sure and wrong"),
        (Reason::Disputed, "The samples disagree"),
    ] {
        let chosen = report.samples.iter().filter(|s| s.pick.reason == reason);
        let cards = chosen
            .map(|sample| card(sample, report.shape, &report.evaluation.classes))
            .collect::<Result<Vec<_>>>()?;
        if !cards.is_empty() {
            html += &element("h3", title);
            html += &element("div class=\"cards\"", &cards.concat());
        }
    }
    Ok(section("samples", "Single images", html))
}

fn card(sample: &Sample, shape: Shape, classes: &[String]) -> Result<String> {
    let pick = &sample.pick;
    let name = |class: usize| classes.get(class).map_or_else(|| class.to_string(), Clone::clone);
    let members = pick.members.len().max(1) as f64;
    let bounds = |class: usize| {
        let values = || pick.members.iter().map(|m| m[class]);
        let mean = values().sum::<f64>() / members;
        (mean, values().fold(1.0, f64::min), values().fold(0.0, f64::max))
    };
    let mut ranked: Vec<(usize, (f64, f64, f64))> =
        (0..classes.len()).map(|class| (class, bounds(class))).collect();
    ranked.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    let guess = ranked.first().map_or(0, |best| best.0);
    let row = |(class, (mean, low, high)): &(usize, (f64, f64, f64))| {
        let kind = if *class == pick.truth { "true" } else { "other" };
        let bar = format!(
            "<i class=\"{kind}\" style=\"width: {:.1}%\"></i><s style=\"left: {:.1}%; width: {:.1}%\"></s>",
            100.0 * mean,
            100.0 * low,
            (100.0 * (high - low)).max(0.5)
        );
        // The number has a width of its own, so that all bars have the same length.
        let track = element("span class=\"track\"", &bar);
        let share = element("span class=\"share\"", &escape(&percent(*mean)));
        element("dt", &escape(&name(*class))) + &element("dd", &(track + &share))
    };
    let rows: Vec<String> = ranked.iter().take(CLASSES).map(row).collect();
    let verdict = if guess == pick.truth {
        format!("{}, rightly", name(guess))
    } else {
        format!("{}, but it is {}", name(guess), name(pick.truth))
    };
    let source = STANDARD.encode(png(&sample.bytes, shape)?);
    let alt = escape(&format!("test image {}: {}", pick.image, name(pick.truth)));
    let image = format!("<img src=\"data:image/png;base64,{source}\" alt=\"{alt}\"/>");
    let doubt = format!("image {}, MI {}", pick.image, number(pick.uncertainty.mutual_information));
    let words = [
        element("b", &escape(&verdict)),
        element("dl", &rows.concat()),
        element("small", &escape(&doubt)),
    ];
    Ok(element("div class=\"card\"", &(image + &element("div", &words.concat()))))
}

/// An image as a PNG file: grey with one channel, in colour with three.
fn png(bytes: &[u8], shape: Shape) -> Result<Vec<u8>> {
    let broken = |problem: String| Error::Data(format!("an image could not be shown: {problem}"));
    let (pixels, color) = match shape.channels {
        1 => (bytes.to_vec(), png::ColorType::Grayscale),
        3 => (bytes.to_vec(), png::ColorType::Rgb),
        // Of other images the first channel is shown.
        channels => {
            (bytes.iter().copied().step_by(channels.max(1)).collect(), png::ColorType::Grayscale)
        }
    };
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, shape.width as u32, shape.height as u32);
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(|e| broken(e.to_string()))?;
    writer.write_image_data(&pixels).map_err(|e| broken(e.to_string()))?;
    writer.finish().map_err(|e| broken(e.to_string()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_png_has_the_pixels_it_was_given() {
        for channels in [1, 3] {
            let shape = Shape { height: 5, width: 4, channels };
            let bytes: Vec<u8> = (0..shape.len()).map(|i| (i * 3) as u8).collect();
            let file = png(&bytes, shape).unwrap();
            let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
            let mut found = vec![0; reader.output_buffer_size().unwrap()];
            let info = reader.next_frame(&mut found).unwrap();
            assert_eq!((info.width, info.height), (4, 5));
            assert_eq!(found, bytes);
        }
        let four = Shape { height: 2, width: 1, channels: 4 };
        assert!(png(&[0; 8], four).is_ok());
        assert!(png(&[0; 7], Shape { channels: 3, ..four }).is_err(), "too few pixels");
    }
}
