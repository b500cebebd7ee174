//! Whether mirrored images still are what they were: those of letters and digits are not.

use thinfer_data::ImageSet;
use thinfer_run::images::NearestMean;

/// The nearest mean tells so much more of the images than of their mirror images where mirroring
/// harms, and more than chance allows.
const MORE: f64 = 0.05;
const ERRORS: f64 = 3.0;

/// Why images are not to be mirrored; nothing where they may be. The mean image of each class is
/// that of `train`, and `test` shows how often the nearest is right.
pub(super) fn look(train: &ImageSet, test: &ImageSet) -> Option<String> {
    let means = NearestMean::of(train);
    let shape = test.shape();
    let channels = shape.channels;
    let mut right = [0usize; 2];
    let rows = test.labels().len();
    for (row, label) in test.labels().iter().enumerate() {
        let image = test.image(row);
        let turned: Vec<u8> = image
            .chunks_exact(shape.width * channels)
            .flat_map(|line| line.chunks_exact(channels).rev().flatten().copied())
            .collect();
        right[0] += usize::from(means.nearest(image) == *label as usize);
        right[1] += usize::from(means.nearest(&turned) == *label as usize);
    }
    let [plain, mirrored] = right.map(|right| right as f64 / rows.max(1) as f64);
    let error = ((plain * (1.0 - plain) + mirrored * (1.0 - mirrored)) / rows.max(1) as f64).sqrt();
    (plain - mirrored > MORE.max(ERRORS * error)).then(|| {
        format!(
            "not, as mirrored images look like other classes (the nearest mean is right for {:.0} % of the images and {:.0} % of the mirrored ones)",
            100.0 * plain,
            100.0 * mirrored
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer_engine::Shape;

    /// Images of 4 x 4 pixels: of class 0 a bright column to the left, of class 1 one at `place`.
    fn set(place: usize) -> ImageSet {
        let shape = Shape { height: 4, width: 4, channels: 1 };
        let image = |column: usize, at: usize| -> Vec<u8> {
            (0..16).map(|p| if p % 4 == column { 200 + (at % 8) as u8 } else { 10 }).collect()
        };
        let bytes = (0..40).flat_map(|at| image(if at % 2 == 0 { 0 } else { place }, at)).collect();
        ImageSet::new(shape, bytes, (0..40).map(|at| at % 2).collect()).unwrap()
    }

    #[test]
    fn images_that_mirror_into_another_class_are_found() {
        let told = look(&set(3), &set(3)).unwrap();
        assert!(
            told.contains("right for 100 % of the images and 0 % of the mirrored ones"),
            "{told}"
        );
        let rows = set(3);
        let same: Vec<u8> =
            (0..40).flat_map(|at| vec![if at % 2 == 0 { 10 } else { 200 }; 16]).collect();
        let symmetric = ImageSet::new(rows.shape(), same, rows.labels().to_vec()).unwrap();
        assert_eq!(look(&symmetric, &symmetric), None);
    }
}
