//! What `train` and `init` are given: a table, a folder of images, or settings as TOML.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thinfer::config::Config;
use thinfer::data::images::list_pictures;
use thinfer::device::Device;
use thinfer::proposal::{Proposal, Wish, of_images, of_table};
use thinfer::{Error, Result};

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Settings,
    Table,
    Images,
}

/// Endings of tables, and of files that are packed besides.
const TABLES: [&str; 5] = ["csv", "tsv", "parquet", "pq", "txt"];
const PACKED: [&str; 2] = ["gz", "zst"];
/// Why images have no target.
pub(crate) const NO_COLUMNS: &str = "images have no columns; their classes are the folders";
/// Bytes of a file without a known ending that are looked at.
const LOOK: usize = 4096;

impl Source {
    /// Looks at a path.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return folder(path);
        }
        let ending = |path: &Path| path.extension().map(|e| e.to_string_lossy().to_lowercase());
        match ending(path) {
            Some(toml) if toml == "toml" => return Ok(Self::Settings),
            Some(table) if TABLES.contains(&table.as_str()) => return Ok(Self::Table),
            Some(packed) if PACKED.contains(&packed.as_str()) => return Ok(Self::Table),
            _ => {}
        }
        if path == Path::new("-") {
            return Ok(Self::Table);
        }
        Ok(if looks_like_settings(path)? { Self::Settings } else { Self::Table })
    }
}

/// What a folder holds.
fn folder(path: &Path) -> Result<Source> {
    let shown = path.display();
    if path.join("run.json").exists() {
        let problem = format!(
            "is the folder of a run; go on with it by `thinfer train {}/config.toml --resume`, or look at it with `thinfer eval {shown}`",
            shown.to_string().trim_end_matches('/')
        );
        return Err(Error::config(shown.to_string(), problem));
    }
    let entries = std::fs::read_dir(path).map_err(|e| Error::file("read", path, e))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let is_file = |file: &&PathBuf| {
        let ending = file.extension().map(|e| e.to_string_lossy().to_lowercase());
        ending.is_some_and(|e| e == "toml" || TABLES.contains(&e.as_str()))
    };
    // Only where something else may be meant: to look for images takes long in a large folder.
    if let Some(other) = files.iter().find(is_file)
        && !files.iter().any(|file| file.extension().is_some_and(|e| e == "tar"))
        && list_pictures(&[path.to_owned()]).is_err()
    {
        let problem = format!("holds no images; give a file in it, such as {}", other.display());
        return Err(Error::config(shown.to_string(), problem));
    }
    Ok(Source::Images)
}

/// Whether the first line that says something is one of TOML.
fn looks_like_settings(path: &Path) -> Result<bool> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| Error::file("read", path, e))?;
    let read = file.take(LOOK as u64).read_to_end(&mut bytes);
    read.map_err(|e| Error::file("read", path, e))?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    let Some(first) = lines.next() else { return Ok(true) };
    let is_key = |name: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        !name.trim().is_empty() && name.trim().chars().all(plain)
    };
    let table = first.starts_with('[') && first.ends_with(']');
    Ok(table || first.split_once('=').is_some_and(|(name, _)| is_key(name)))
}

/// The name of a source without folders and endings: that of its run.
pub(crate) fn name_of(path: &Path) -> PathBuf {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if whole.is_dir() {
        return PathBuf::from(whole.file_name().unwrap_or_default());
    }
    let stem = |path: &Path| PathBuf::from(path.file_stem().unwrap_or_default());
    let once = stem(path);
    let packed = path.extension().is_some_and(|e| PACKED.iter().any(|packed| e == *packed));
    if packed { stem(&once) } else { once }
}

/// What is asked for besides a path.
pub(crate) struct Asked<'a> {
    pub(crate) target: Option<&'a str>,
    pub(crate) minutes: Option<f64>,
    pub(crate) set: &'a [String],
    pub(crate) device: Device,
}

/// Settings for a table or a folder of images.
pub(crate) fn propose(source: Source, path: &Path, asked: &Asked<'_>) -> Result<Proposal> {
    if let Some(minutes) = asked.minutes.filter(|minutes| !(*minutes > 0.0 && minutes.is_finite()))
    {
        let problem = format!("is {minutes}, but must be above 0; give for example 2");
        return Err(Error::config("--minutes", problem));
    }
    let wish = Wish { minutes: asked.minutes, set: asked.set.to_vec(), device: asked.device };
    if source == Source::Images {
        refuse_target(asked.target, NO_COLUMNS)?;
        return of_images(path, &wish);
    }
    of_table(path, asked.target, &wish)
}

/// Refuses what is of data without settings.
pub(crate) fn refuse_table_options(asked: &Asked<'_>) -> Result<()> {
    refuse_target(asked.target, "this is a file of settings, which has `data.target`")?;
    match asked.minutes {
        None => Ok(()),
        Some(_) => Err(Error::config(
            "--minutes",
            "is of a table or a folder of images, whose settings are chosen; a file of settings has `train.epochs`, or `method.budget_seconds`. Leave it out",
        )),
    }
}

/// What was chosen, in a few lines.
pub(crate) fn to_text(proposal: &Proposal) -> String {
    let time = proposal.estimate.map(|estimate| format!("time: about {estimate} in all"));
    let lines = proposal.lines.iter().cloned().chain(time);
    lines.map(|line| line + "\n").collect()
}

/// The same with all settings.
pub(crate) fn to_json(proposal: &Proposal) -> Value {
    let chosen = proposal.choices.iter();
    json!({
        "chosen": chosen.map(|c| json!({"key": c.key, "value": c.value, "why": c.why})).collect::<Vec<_>>(),
        "lines": proposal.lines,
        "notices": proposal.notices,
        "seconds": proposal.estimate,
    })
}

/// Refuses a target where there is no table.
pub(crate) fn refuse_target(target: Option<&str>, why: &str) -> Result<()> {
    match target {
        None => Ok(()),
        Some(_) => {
            Err(Error::config("--target", format!("is of a table, and {why}. Leave it out")))
        }
    }
}

/// The settings that a run of a source keeps in its folder, with others besides.
pub(crate) fn kept(folder: &Path, path: &Path, asked: &Asked<'_>) -> Result<Config> {
    let config = Config::read(&folder.join("config.toml"), asked.set)?;
    let other = |what: &str| {
        let problem = format!(
            "holds a run of {what}; choose another folder with --out, or replace the run with --force"
        );
        Error::config(folder.display().to_string(), problem)
    };
    let data = config.data.path.as_deref().unwrap_or_default();
    if Path::new(data) != path {
        return Err(other(if data.is_empty() { "other data" } else { data }));
    }
    if let (Some(asked), Some(kept)) = (asked.target, config.data.target.as_deref())
        && asked != kept
    {
        return Err(other(&format!("the target `{kept}`")));
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn paths_are_recognised_by_looking() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        assert_eq!(Source::of(&at("a.csv", "a = 1")).unwrap(), Source::Table);
        assert_eq!(Source::of(&at("a.CSV.gz", "")).unwrap(), Source::Table);
        assert_eq!(Source::of(&at("a.toml", "x,y")).unwrap(), Source::Settings);
        assert_eq!(Source::of(&at("settings", "# mine\n\n[data]\n")).unwrap(), Source::Settings);
        assert_eq!(Source::of(&at("also", "seed = 2\n")).unwrap(), Source::Settings);
        assert_eq!(Source::of(&at("rows", "x,y\n1,2\n")).unwrap(), Source::Table);
        at("photos/cat/1.png", "");
        assert_eq!(Source::of(&folder.path().join("photos")).unwrap(), Source::Images);
        at("runs/a/run.json", "");
        let refused = Source::of(&folder.path().join("runs/a")).unwrap_err().to_string();
        assert!(refused.contains("runs/a/config.toml --resume"), "{refused}");
        at("tables/a.csv", "");
        let refused = Source::of(&folder.path().join("tables")).unwrap_err().to_string();
        assert!(refused.contains("holds no images; give a file in it, such as"), "{refused}");
        let absent = Source::of(&folder.path().join("none")).unwrap_err().to_string();
        assert!(absent.ends_with("Check the path"), "{absent}");
    }

    #[test]
    fn runs_are_named_after_their_source() {
        for (path, name) in [("d/a.csv", "a"), ("a.csv.gz", "a"), ("a.b.toml", "a.b")] {
            assert_eq!(name_of(Path::new(path)), Path::new(name));
        }
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("v1.5")).unwrap();
        assert_eq!(name_of(&folder.path().join("v1.5/")), Path::new("v1.5"));
    }
}
