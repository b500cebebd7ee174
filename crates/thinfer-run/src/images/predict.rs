//! Classes of picture files, with what is unknown about them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};
use thinfer_core::classify::classify;
use thinfer_core::device::OnCuda;
use thinfer_core::metrics::{Uncertainty, uncertainty};
use thinfer_core::posterior::Posterior;
use thinfer_data::images::{Fit, list_pictures, read_picture};
use thinfer_data::table::csv_failure;
use thinfer_data::{Error, Result};
use thinfer_data::{ImageSet, Images};

use crate::config::DataKind;
use crate::run::RunInfo;

/// Pictures that are decoded and predicted at a time.
const AT_A_TIME: usize = 2048;
/// Files named in a note, at most.
const NAMED: usize = 3;

/// What is predicted for one picture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImagePrediction {
    /// The file.
    pub file: PathBuf,
    /// The number of its most likely class.
    pub class: usize,
    /// What is unknown about it.
    pub uncertainty: Uncertainty,
    /// The probability of every class, averaged over samples.
    pub probabilities: Vec<f64>,
}

/// What is predicted for some pictures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImagePredictions {
    /// The names of the classes.
    pub classes: Vec<String>,
    /// Samples that were averaged.
    pub members: usize,
    /// The pictures that could be read, in the order they were given.
    pub pictures: Vec<ImagePrediction>,
    /// Those that could not, and why.
    pub unreadable: Vec<(PathBuf, String)>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Predicts picture files, and all pictures below folders, with the samples of `posterior`.
pub fn predict_images(
    info: &RunInfo,
    posterior: &Posterior,
    paths: &[PathBuf],
    on: Option<&OnCuda>,
) -> Result<ImagePredictions> {
    let inputs = info.images()?;
    if posterior.members.is_empty() {
        let text = "the run has no posterior samples yet; let it reach the end of its first cycle";
        return Err(Error::Data(text.into()));
    }
    let (shape, augment) = (inputs.shape, inputs.augment()?);
    let fit = if info.config.data.kind == DataKind::Images { Fit::Centre } else { Fit::Whole };
    let files = list_pictures(paths)?;
    let mut found = ImagePredictions {
        classes: inputs.classes.clone(),
        members: posterior.members.len(),
        pictures: Vec::new(),
        unreadable: Vec::new(),
        notes: Vec::new(),
    };
    let mut resized = Vec::new();
    for part in files.chunks(AT_A_TIME) {
        let read: Vec<_> = part.par_iter().map(|file| read_picture(file, shape, fit)).collect();
        let (mut bytes, mut readable) = (Vec::new(), Vec::new());
        for (file, picture) in part.iter().zip(read) {
            match picture {
                Ok(picture) => {
                    if picture.size != (shape.width, shape.height) {
                        resized.push((file, picture.size));
                    }
                    bytes.extend(picture.bytes);
                    readable.push(file);
                }
                Err(problem) => found.unreadable.push((file.clone(), problem)),
            }
        }
        if readable.is_empty() {
            continue;
        }
        let set = ImageSet::new(shape, bytes, vec![0; readable.len()])?;
        let images = Images::Held(Arc::new(set));
        let members = classify(&posterior.network, &posterior.members, &images, &augment, on)?;
        found.add(&readable, &members);
    }
    if found.pictures.is_empty() {
        let named = named(&found.unreadable);
        return Err(Error::Data(match files.len() {
            1 => format!("the picture cannot be read: {named}; give a .jpg or .png file"),
            many => {
                format!("none of {many} pictures can be read: {named}; give .jpg or .png files")
            }
        }));
    }
    if !found.unreadable.is_empty() {
        let named = named(&found.unreadable);
        found.notes.push(match found.unreadable.len() {
            1 => format!("1 picture cannot be read and is left out: {named}"),
            many => format!("{many} pictures cannot be read and are left out: {named}"),
        });
    }
    if let Some((file, (width, height))) = resized.first() {
        let how = if fit == Fit::Centre { "cropped in the middle and resized" } else { "resized" };
        found.notes.push(format!(
            "{} of {} pictures were {how} to {}x{}, such as {} of {width}x{height}",
            resized.len(),
            files.len(),
            shape.width,
            shape.height,
            file.display()
        ));
    }
    Ok(found)
}

fn named(unreadable: &[(PathBuf, String)]) -> String {
    let name = |(file, problem): &(PathBuf, String)| format!("{} {problem}", file.display());
    unreadable.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ")
}

impl ImagePredictions {
    fn add(&mut self, files: &[&PathBuf], members: &[Vec<f64>]) {
        let classes = self.classes.len();
        let tables: Vec<&[f64]> = members.iter().map(Vec::as_slice).collect();
        let unknown = uncertainty(&tables, classes);
        for (at, (file, uncertainty)) in files.iter().zip(unknown).enumerate() {
            let mean = |class: usize| {
                tables.iter().map(|t| t[at * classes + class]).sum::<f64>() / tables.len() as f64
            };
            let probabilities: Vec<f64> = (0..classes).map(mean).collect();
            // The first of equals, as accuracy counts it.
            let best = |best: usize, class: usize| {
                if probabilities[class] > probabilities[best] { class } else { best }
            };
            let class = (0..classes).fold(0, best);
            let file = (*file).clone();
            self.pictures.push(ImagePrediction { file, class, uncertainty, probabilities });
        }
    }

    /// Writes one line a picture: file, class, its probability, entropy and mutual information in
    /// nats, and on request the probability of every class.
    pub fn write_csv(&self, to: &mut dyn io::Write, every_class: bool) -> io::Result<()> {
        self.csv_text(to, every_class).map_err(csv_failure)
    }

    fn csv_text(&self, to: &mut dyn io::Write, every_class: bool) -> csv::Result<()> {
        let mut writer = csv::Writer::from_writer(to);
        let mut head: Vec<String> =
            ["file", "class", "probability", "entropy", "mutual_information"]
                .map(str::to_owned)
                .to_vec();
        if every_class {
            head.extend(self.classes.iter().map(|class| format!("p_{class}")));
        }
        writer.write_record(&head)?;
        for picture in &self.pictures {
            let mut row = vec![
                picture.file.display().to_string(),
                self.classes[picture.class].clone(),
                picture.probabilities[picture.class].to_string(),
                picture.uncertainty.entropy.to_string(),
                picture.uncertainty.mutual_information.to_string(),
            ];
            if every_class {
                row.extend(picture.probabilities.iter().map(f64::to_string));
            }
            writer.write_record(&row)?;
        }
        Ok(writer.flush()?)
    }

    /// The same as JSON.
    pub fn to_json(&self, every_class: bool) -> Value {
        let picture = |p: &ImagePrediction| {
            let mut object = json!({
                "file": p.file.display().to_string(),
                "class": self.classes[p.class],
                "probability": p.probabilities[p.class],
                "entropy": p.uncertainty.entropy,
                "mutual_information": p.uncertainty.mutual_information,
            });
            if every_class {
                let named = self.classes.iter().zip(&p.probabilities);
                object["probabilities"] = named.map(|(c, p)| (c.clone(), json!(p))).collect();
            }
            object
        };
        let unreadable = |(file, problem): &(PathBuf, String)| json!({ "file": file.display().to_string(), "problem": problem });
        json!({
            "members": self.members,
            "pictures": self.pictures.iter().map(picture).collect::<Vec<_>>(),
            "unreadable": self.unreadable.iter().map(unreadable).collect::<Vec<_>>(),
        })
    }

    /// Writes the lines of [`ImagePredictions::write_csv`] to a file, whole or not at all.
    pub fn write(&self, path: &Path, every_class: bool) -> Result<()> {
        let mut bytes = Vec::new();
        self.write_csv(&mut bytes, every_class).map_err(|e| Error::file("write", path, e))?;
        thinfer_data::files::write_whole(path, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predictions() -> ImagePredictions {
        let mut found = ImagePredictions {
            classes: vec!["cat".into(), "dog, small".into()],
            members: 2,
            pictures: Vec::new(),
            unreadable: vec![("c.png".into(), "is truncated".into())],
            notes: Vec::new(),
        };
        let files = [PathBuf::from("a.png"), PathBuf::from("b.png")];
        let members = [vec![1.0, 0.0, 0.5, 0.5], vec![0.5, 0.5, 0.25, 0.75]];
        found.add(&[&files[0], &files[1]], &members);
        found
    }

    #[test]
    fn a_line_says_class_probability_and_doubt() {
        let mut text = Vec::new();
        predictions().write_csv(&mut text, false).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "file,class,probability,entropy,mutual_information");
        // H(3/4, 1/4) = 0.5623; the members have 0 and ln 2, so half of ln 2 is no disagreement.
        assert!(lines[1].starts_with("a.png,cat,0.75,0.56233"), "{text}");
        assert!(lines[2].starts_with("b.png,\"dog, small\",0.625,"), "{text}");
        let mut text = Vec::new();
        predictions().write_csv(&mut text, true).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.starts_with("file,class,probability,entropy,mutual_information,p_cat,"),
            "{text}"
        );
        assert!(text.lines().nth(2).unwrap().ends_with(",0.375,0.625"), "{text}");
    }

    /// A reader who has seen enough, as `head` does.
    struct Closed;

    impl io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_known_as_one() {
        let mut many = predictions();
        let kind =
            |found: &ImagePredictions| found.write_csv(&mut Closed, true).unwrap_err().kind();
        assert_eq!(kind(&many), io::ErrorKind::BrokenPipe, "when it is flushed");
        many.pictures = (0..999).map(|at| many.pictures[at % 2].clone()).collect();
        assert_eq!(kind(&many), io::ErrorKind::BrokenPipe, "when the buffer is full");
    }

    #[test]
    fn json_names_classes_and_what_was_left_out() {
        let json = predictions().to_json(true);
        assert_eq!(json["pictures"][1]["class"], "dog, small");
        assert_eq!(json["pictures"][0]["probabilities"]["cat"], 0.75);
        assert_eq!(json["unreadable"][0]["problem"], "is truncated");
        assert!(predictions().to_json(false)["pictures"][0]["probabilities"].is_null());
    }
}
