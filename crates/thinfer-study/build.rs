//! Puts the shipped configurations into the library, so that a file more is a row more of a table.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("configs");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            files.push(path);
        }
    }
    files.sort();
    let line = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        format!("    ({name:?}, include_str!({:?})),\n", path.display().to_string())
    };
    let lines: String = files.iter().map(line).collect();
    let out = Path::new(&env::var("OUT_DIR")?).join("configs.rs");
    fs::write(out, format!("&[\n{lines}]\n"))?;
    Ok(())
}
