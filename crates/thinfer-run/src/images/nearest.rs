//! The nearest mean image: what images can be told by without learning.

use thinfer_data::ImageSet;

/// The mean image of each class.
pub struct NearestMean {
    means: Vec<Option<Vec<f32>>>,
}

impl NearestMean {
    /// The means of a set.
    pub fn of(set: &ImageSet) -> Self {
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
        Self { means: sums.into_iter().map(mean).collect() }
    }

    /// The class whose mean is nearest; of equals the first.
    pub fn nearest(&self, image: &[u8]) -> usize {
        let distance = |mean: &Vec<f32>| -> f32 {
            mean.iter().zip(image).map(|(mean, pixel)| (mean - f32::from(*pixel)).powi(2)).sum()
        };
        let all = self.means.iter().enumerate();
        let all = all.filter_map(|(class, mean)| Some((class, distance(mean.as_ref()?))));
        all.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(class, _)| class)
    }

    /// The share of the images of a set that it is right for.
    pub fn accuracy(&self, set: &ImageSet) -> f64 {
        let right = set.labels().iter().enumerate();
        let right = right.filter(|(row, label)| self.nearest(set.image(*row)) == **label as usize);
        right.count() as f64 / set.labels().len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thinfer_engine::Shape;

    #[test]
    fn the_nearest_mean_is_taken() {
        let shape = Shape { height: 1, width: 1, channels: 1 };
        let set = ImageSet::new(shape, vec![0, 20, 200, 220], vec![0, 0, 2, 2]).unwrap();
        let means = NearestMean::of(&set);
        assert_eq!([5, 100, 120].map(|pixel| means.nearest(&[pixel])), [0, 0, 2]);
        let other = ImageSet::new(shape, vec![30, 210, 1], vec![0, 2, 1]).unwrap();
        assert!((means.accuracy(&other) - 2.0 / 3.0).abs() < 1e-12);
    }
}
