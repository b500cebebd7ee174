//! Whether mirrored images still are what they were: those of letters and digits are not.

use thinfer_data::ImageSet;

/// The nearest mean tells so much more of the images than of their mirror images where mirroring
/// harms, and more than chance allows.
const MORE: f64 = 0.05;
const ERRORS: f64 = 3.0;

/// Why images are not to be mirrored; nothing where they may be. The mean image of each class is
/// that of `train`, and `test` shows how often the nearest is right.
pub(super) fn look(train: &ImageSet, test: &ImageSet) -> Option<String> {
    let means = means(train);
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
        right[0] += usize::from(nearest(&means, image) == *label as usize);
        right[1] += usize::from(nearest(&means, &turned) == *label as usize);
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

fn means(set: &ImageSet) -> Vec<Option<Vec<f32>>> {
    let classes = set.labels().iter().max().map_or(0, |last| *last as usize + 1);
    let mut sums = vec![(vec![0.0f32; set.shape().len()], 0.0f32); classes];
    for (row, label) in set.labels().iter().enumerate() {
        let (sum, count) = &mut sums[*label as usize];
        sum.iter_mut().zip(set.image(row)).for_each(|(sum, pixel)| *sum += f32::from(*pixel));
        *count += 1.0;
    }
    let mean = |(sum, count): (Vec<f32>, f32)| {
        (count > 0.0).then(|| sum.into_iter().map(|sum| sum / count).collect())
    };
    sums.into_iter().map(mean).collect()
}

/// The class with the nearest mean.
fn nearest(means: &[Option<Vec<f32>>], image: &[u8]) -> usize {
    let distance = |mean: &Vec<f32>| -> f32 {
        mean.iter().zip(image).map(|(mean, pixel)| (mean - f32::from(*pixel)).powi(2)).sum()
    };
    let known = means.iter().enumerate().filter_map(|(class, mean)| Some((class, mean.as_ref()?)));
    let all = known.map(|(class, mean)| (class, distance(mean)));
    all.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(class, _)| class)
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
