//! A folder of arrays in the Zarr format, version 2: JSON beside chunks that are not compressed.
//!
//! Written by hand, as the format is the few lines below. The crate `zarrs` without any codec brings
//! 65 crates. Of NetCDF, `netcdf3` has no groups, `netcdf` binds libraries in C, and `hdf5-pure`
//! knows HDF5 without NetCDF's dimensions.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use thinfer_data::{Error, Result};
use thinfer_run::run::{CHAINS_WRITER, is_chains_export};

/// Bytes of a chunk, about at most.
const CHUNK: usize = 64 << 20;

/// What an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Float32,
    Float64,
    Int64,
    /// Text of so many letters.
    Text(usize),
}

impl Kind {
    fn name(self) -> String {
        match self {
            Self::Float32 => "<f4".into(),
            Self::Float64 => "<f8".into(),
            Self::Int64 => "<i8".into(),
            Self::Text(letters) => format!("<U{letters}"),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Float32 => 4,
            Self::Float64 | Self::Int64 => 8,
            Self::Text(letters) => 4 * letters,
        }
    }
}

/// An array: its place, what its axes are called, and how long they are.
#[derive(Clone, Debug)]
pub(super) struct Array<'a> {
    pub group: &'a str,
    pub name: &'a str,
    pub kind: Kind,
    /// The first two are `chain` and `draw` where draws are written one by one.
    pub axes: Vec<String>,
    pub shape: Vec<usize>,
    pub about: Option<&'a str>,
}

/// A store that is being written beside its place; it goes away unless it is given its name.
pub(super) struct Store {
    draft: TempDir,
    place: PathBuf,
    metadata: Map<String, Value>,
    bytes: usize,
}

impl Store {
    /// Begins a store whose place is `path`, with these attributes of its root.
    pub(super) fn begin(path: &Path, mut attributes: Map<String, Value>) -> Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut prefix = path.file_name().unwrap_or_default().to_os_string();
        prefix.push(".");
        let mut draft = tempfile::Builder::new();
        let draft = draft.prefix(&prefix).suffix(".partial");
        let draft = draft.tempdir_in(folder.unwrap_or(Path::new(".")));
        let draft = draft.map_err(|e| Error::file("write", path, e))?;
        let mut store = Self { draft, place: path.to_owned(), metadata: Map::new(), bytes: 0 };
        attributes.insert(CHAINS_WRITER.0.into(), CHAINS_WRITER.1.into());
        store.group("", attributes)?;
        Ok(store)
    }

    /// Begins a group of the root.
    pub(super) fn group(&mut self, name: &str, attributes: Map<String, Value>) -> Result<()> {
        self.describe(&key(name, ".zgroup"), json!({ "zarr_format": 2 }))?;
        self.describe(&key(name, ".zattrs"), Value::Object(attributes))
    }

    /// Writes an array whole.
    pub(super) fn whole(&mut self, array: &Array<'_>, bytes: &[u8]) -> Result<()> {
        self.begin_array(array, &array.shape)?;
        let number = vec!["0"; array.shape.len().max(1)].join(".");
        self.file(&key(array.group, &format!("{}/{number}", array.name)), bytes)
    }

    /// Writes an array of chains and draws, in chunks of draws of one chain. `draw` gives the bytes
    /// of one of them.
    pub(super) fn draws(
        &mut self,
        array: &Array<'_>,
        mut draw: impl FnMut(usize, usize) -> Vec<u8>,
    ) -> Result<()> {
        let (chains, draws) = (array.shape[0], array.shape[1]);
        let rest = &array.shape[2..];
        let each = array.kind.bytes() * rest.iter().product::<usize>();
        let together = (CHUNK / each.max(1)).clamp(1, draws.max(1));
        let chunk: Vec<usize> = [1, together].into_iter().chain(rest.iter().copied()).collect();
        self.begin_array(array, &chunk)?;
        let tail = ".0".repeat(rest.len());
        for chain in 0..chains {
            for number in 0..draws.div_ceil(together) {
                let here: Range<usize> = number * together..((number + 1) * together).min(draws);
                let mut bytes: Vec<u8> = here.flat_map(|at| draw(chain, at)).collect();
                // The last chunk is as long as the others.
                bytes.resize(together * each, 0);
                let name = format!("{}/{chain}.{number}{tail}", array.name);
                self.file(&key(array.group, &name), &bytes)?;
            }
        }
        Ok(())
    }

    fn begin_array(&mut self, array: &Array<'_>, chunk: &[usize]) -> Result<()> {
        let about = json!({
            "chunks": chunk,
            "compressor": null,
            "dtype": array.kind.name(),
            "fill_value": null,
            "filters": null,
            "order": "C",
            "shape": array.shape,
            "zarr_format": 2,
        });
        let mut attributes = Map::new();
        attributes.insert("_ARRAY_DIMENSIONS".into(), json!(array.axes));
        if let Some(about) = array.about {
            attributes.insert("long_name".into(), about.into());
        }
        let name = key(array.group, array.name);
        self.describe(&key(&name, ".zarray"), about)?;
        self.describe(&key(&name, ".zattrs"), Value::Object(attributes))
    }

    fn describe(&mut self, name: &str, value: Value) -> Result<()> {
        self.file(name, value.to_string().as_bytes())?;
        self.metadata.insert(name.to_owned(), value);
        Ok(())
    }

    /// Writes a file and reads it back.
    fn file(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.draft.path().join(name);
        let failed = |e| Error::file("write", &self.place, e);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut file = File::create_new(&path).map_err(failed)?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
        if fs::read(&path).map_err(|e| Error::file("read back", &self.place, e))? != bytes {
            return Err(Error::Promise(format!(
                "{}: the disk did not keep what was written; check it and export again",
                self.place.display()
            )));
        }
        self.bytes += bytes.len();
        Ok(())
    }

    /// Gives the store its name, and tells its bytes. One that is there is replaced with `replace`,
    /// where thinfer wrote it; anything else that is there stays, and that is an error.
    pub(super) fn finish(mut self, replace: bool) -> Result<usize> {
        let metadata = std::mem::take(&mut self.metadata);
        let all = json!({ "zarr_consolidated_format": 1, "metadata": metadata });
        self.file(".zmetadata", all.to_string().as_bytes())?;
        let place = self.place.clone();
        let failed = |e| Error::file("rename", &place, e);
        check_place(&place, replace)?;
        let there = place.symlink_metadata().is_ok();
        // Two folders cannot change places at once: the old one waits beside it.
        let old = self.draft.path().with_extension("replaced");
        if there {
            fs::rename(&place, &old).map_err(failed)?;
        }
        let bytes = self.bytes;
        let draft = self.draft.keep();
        if let Err(error) = fs::rename(&draft, &place) {
            if there {
                // Where this fails too, the message of the first failure still says what happened.
                let _ = fs::rename(&old, &place);
            }
            let _ = fs::remove_dir_all(&draft);
            return Err(failed(error));
        }
        if there {
            fs::remove_dir_all(&old).map_err(|e| Error::file("remove", &old, e))?;
        }
        Ok(bytes)
    }
}

/// Refuses a place where something is that must stay: everything without `replace`, and with it all
/// but an earlier export of thinfer.
pub(super) fn check_place(path: &Path, replace: bool) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    let problem = if !replace {
        format!(
            "{} already exists; choose another place, or replace it with --force",
            path.display()
        )
    } else if is_chains_export(path) {
        return Ok(());
    } else {
        format!("{} is no export of thinfer, so it is kept; choose another place", path.display())
    };
    Err(Error::config("--out", problem))
}

fn key(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{group}/{name}") }
}

/// Text as the format has it: four bytes a letter, zeros behind the last.
pub(super) fn text(words: &[String]) -> (Kind, Vec<u8>) {
    let letters = words.iter().map(|word| word.chars().count()).max().unwrap_or(0).max(1);
    let mut bytes = Vec::with_capacity(4 * letters * words.len());
    for word in words {
        let mut written = 0;
        for letter in word.chars() {
            bytes.extend(u32::from(letter).to_le_bytes());
            written += 1;
        }
        bytes.resize(bytes.len() + 4 * (letters - written), 0);
    }
    (Kind::Text(letters), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn array<'a>(kind: Kind, shape: &[usize]) -> Array<'a> {
        let axes = (0..shape.len()).map(|axis| format!("a{axis}")).collect();
        Array { group: "g", name: "x", kind, axes, shape: shape.to_vec(), about: None }
    }

    /// As the specification of version 2 has it: chunks in the order of the axes, the last one
    /// filled up.
    #[test]
    fn draws_are_chunks_of_one_chain() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("s.zarr");
        let mut store = Store::begin(&place, Map::new()).unwrap();
        store.group("g", Map::new()).unwrap();
        // So long that two draws fill a chunk.
        let long = CHUNK / 8;
        let of = |chain: usize, draw: usize| vec![(10 * chain + draw) as u8; 4 * long];
        store.draws(&array(Kind::Float32, &[2, 3, long]), of).unwrap();
        assert!(!place.exists());
        store.finish(false).unwrap();
        let path = |name: &str| place.join("g/x").join(name);
        assert_eq!(
            names(&place.join("g/x")),
            [".zarray", ".zattrs", "0.0.0", "0.1.0", "1.0.0", "1.1.0"]
        );
        let last = fs::read(path("1.1.0")).unwrap();
        assert_eq!((last.len(), last[0], last[4 * long]), (8 * long, 12, 0));
        let about: Value = serde_json::from_slice(&fs::read(path(".zarray")).unwrap()).unwrap();
        assert_eq!(about["chunks"], json!([1, 2, long]));
        let all: Value =
            serde_json::from_slice(&fs::read(place.join(".zmetadata")).unwrap()).unwrap();
        assert_eq!(all["metadata"]["g/x/.zarray"], about);
        assert_eq!(names(folder.path()), ["s.zarr"]);
    }

    #[test]
    fn words_are_filled_up_with_zeros() {
        let (kind, bytes) = text(&["ab".into(), "ü".into()]);
        assert_eq!((kind.name().as_str(), kind.bytes()), ("<U2", 8));
        assert_eq!(bytes, [97, 0, 0, 0, 98, 0, 0, 0, 252, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(text(&[]).0, Kind::Text(1));
    }

    #[test]
    fn only_what_thinfer_wrote_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("s.zarr");
        let write = |replace: bool| {
            let mut store = Store::begin(&place, Map::new()).unwrap();
            store.whole(&array(Kind::Float64, &[1]), &1f64.to_le_bytes()).unwrap();
            store.finish(replace)
        };
        fs::create_dir(&place).unwrap();
        fs::write(place.join("mine"), "mine").unwrap();
        for replace in [false, true] {
            assert!(write(replace).is_err());
            assert_eq!(names(&place), ["mine"]);
        }
        fs::remove_dir_all(&place).unwrap();
        write(false).unwrap();
        let error = write(false).unwrap_err().to_string();
        assert!(error.contains("already exists; choose another place, or replace it"), "{error}");
        fs::write(place.join("old"), "").unwrap();
        write(true).unwrap();
        assert!(!place.join("old").exists());
        assert_eq!(names(folder.path()), ["s.zarr"], "nothing is left beside it");
    }
}
