//! What the report of a run on images is made from.

use thinfer_core::shrink::Saving;
use thinfer_data::{ImageData, Images, Result, View};
use thinfer_run::images::ImageEvaluation;
use thinfer_run::run::Run;

use super::{ImageReport, Origin, Sample, html};

/// The report of a run on images, as the text of an HTML file. Data and evaluation must be those of
/// the same run.
pub(in crate::report) fn of_run(
    run: &Run,
    data: &ImageData,
    evaluation: &ImageEvaluation,
) -> Result<String> {
    let samples = evaluation
        .picks
        .iter()
        .map(|pick| Ok(Sample { bytes: pixels(&data.test, pick.image)?, pick: pick.clone() }))
        .collect::<Result<Vec<_>>>()?;
    let info = &run.info;
    let mut notes = info.notes.clone();
    notes.extend(evaluation.unreadable.notes());
    let last = run.results.iter().rev().find_map(|result| result.snapshots.last());
    let pruned = last.filter(|sample| sample.keep.contains(&0));
    let saving = pruned.map(|sample| Saving::of(&info.network, sample)).transpose()?;
    html(&ImageReport {
        config: &info.config,
        evaluation,
        results: &run.results,
        shape: data.test.shape(),
        samples: &samples,
        saving: saving.as_ref(),
        origin: Origin {
            thinfer: &info.thinfer,
            platform: &info.platform,
            device: &info.device,
            cores: info.cores,
            data_fingerprint: info.data_fingerprint,
            // A run that was opened did not train in this call.
            seconds: Some(run.seconds).filter(|seconds| *seconds > 0.0),
            notes: &notes,
        },
    })
}

/// The pixels of one image, as an evaluation sees it.
fn pixels(images: &Images, image: usize) -> Result<Vec<u8>> {
    match images {
        Images::Held(set) => Ok(set.image(image).to_vec()),
        Images::Streamed(stream) => {
            let mut bytes = vec![0; stream.shape().len()];
            stream.fill(&[image as u32], View::Centre, &mut bytes)?;
            Ok(bytes)
        }
    }
}
