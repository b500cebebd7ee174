//! Replays the corpus of the fuzz targets (`fuzz/corpus`), whole and damaged, through the functions
//! that the targets call.

#[expect(unreachable_pub, dead_code, reason = "the fuzz targets use it as a crate")]
#[path = "../../../fuzz/src/lib.rs"]
mod targets;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use thinfer::fuzzing::{FORMATS, Format, Outcome};
use thinfer_engine::noise::{Key, Stream};

/// Files of at most so many bytes are cut at every length, others so often.
const CUTS: usize = 400;
/// Changed bytes, changed words and changed numbers in text, of each file.
const CHANGES: usize = 120;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The names of what is in a folder, without endings.
fn names(folder: &str) -> BTreeSet<String> {
    let stem = |path: PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    let entries = fs::read_dir(fuzz().join(folder)).unwrap();
    entries.map(|entry| stem(entry.unwrap().path())).collect()
}

/// The files of a corpus, in the order of their names.
fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<PathBuf> = fs::read_dir(fuzz().join("corpus").join(name))
        .unwrap_or_else(|e| panic!("the target `{name}` has no corpus: {e}"))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let file = |path: PathBuf| {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        (format!("{name}/{file}"), fs::read(path).unwrap())
    };
    files.into_iter().map(file).collect()
}

/// Reads bytes, and fails where a promise is broken.
fn read(format: Format, bytes: &[u8], which: &str) -> Outcome {
    targets::read(format, bytes).unwrap_or_else(|fault| {
        let kept = std::env::temp_dir().join(format!("thinfer-fuzz-{}", format.name));
        fs::write(&kept, bytes).unwrap();
        panic!("{which} ({} bytes, kept as {}): {fault}", bytes.len(), kept.display());
    })
}

/// Damaged copies of a file, the same in every run.
fn damages(bytes: &[u8], stream: u64) -> Vec<(String, Vec<u8>)> {
    let key = Key::new(1, 0, Stream::Inputs);
    let draw = |number: usize, below: usize| key.below(stream, number, below.max(1));
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    for cut in 0..CUTS.min(bytes.len()) {
        let len = if bytes.len() <= CUTS { cut } else { draw(cut, bytes.len()) };
        all.push((format!("cut at {len}"), bytes[..len].to_vec()));
    }
    for change in 0..CHANGES.min(4 * bytes.len()) {
        let first = CUTS + 3 * change;
        // Headers come first, and most of what can go wrong is in them.
        let place = draw(first, if change % 2 == 0 { bytes.len().min(200) } else { bytes.len() });
        let mut copy = bytes.to_vec();
        copy[place] ^= 1 + draw(first + 1, 255) as u8;
        all.push((format!("with byte {place} changed to {}", copy[place]), copy));
        let mut copy = bytes.to_vec();
        let value = [0, 0x7f, 0xff][draw(first + 2, 3)];
        copy.iter_mut().skip(place).take(4).for_each(|byte| *byte = value);
        all.push((format!("with four bytes from {place} on changed to {value}"), copy));
    }
    // Sizes in text.
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let starts = (0..bytes.len()).filter(|at| is_digit(*at) && (*at == 0 || !is_digit(at - 1)));
    for start in starts.take(CHANGES) {
        let digits = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        for number in ["0", "4294967296", "9223372036854775807", "18446744073709551615"] {
            let copy = [&bytes[..start], number.as_bytes(), &bytes[start + digits..]].concat();
            all.push((format!("with the number at {start} changed to {number}"), copy));
        }
    }
    all
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let formats: BTreeSet<String> = FORMATS.map(|format| format.name.to_owned()).into();
    assert_eq!(names("fuzz_targets"), formats, "fuzz/fuzz_targets");
    assert_eq!(names("corpus"), formats, "fuzz/corpus");
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for name in formats {
        assert!(manifest.contains(&format!("\nname = \"{name}\"\n")), "{name} is not built");
        let target = fs::read_to_string(fuzz().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(target.contains(&format!("check(\"{name}\", bytes)")), "{name} reads otherwise");
    }
}

/// The whole corpus; in each are files that are read and, but for damage, files that are refused.
#[test]
fn the_corpus_is_read_or_refused_whole_and_damaged() {
    targets::keep_panics();
    for (at, format) in FORMATS.into_iter().enumerate() {
        let files = corpus(format.name);
        let (mut good, mut refused) = (0, 0);
        for (name, bytes) in &files {
            match read(format, bytes, name) {
                Outcome::Read => good += 1,
                Outcome::Refused(reason) => assert_ne!(reason, "", "{name}"),
            }
            for (how, damaged) in damages(bytes, at as u64) {
                let outcome = read(format, &damaged, &format!("{name} {how}"));
                refused += usize::from(outcome != Outcome::Read);
            }
        }
        assert!(good > 0, "no file of the corpus of {} is read; write new seeds", format.name);
        assert!(refused > 0, "no damage to the corpus of {} is noticed", format.name);
    }
}
