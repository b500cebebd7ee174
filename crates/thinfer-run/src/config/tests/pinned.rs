//! Resolved configurations as they have always been written: runs are known by these bytes.

use super::super::*;

/// What `pinned.txt` must say: a line for each shipped file under each preset, and for each method
/// on a table and on images. A line has the fingerprint, and the checksums of all of the TOML and
/// of the JSON.
fn lines() -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    files.sort();
    let mut asked = Vec::new();
    for preset in ["exact", "paper", "reference-code"] {
        let with_preset = |more: &[String]| [&[format!("preset={preset}")], more].concat();
        for path in &files {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            asked.push((name, std::fs::read_to_string(path).unwrap(), with_preset(&[])));
        }
        for method in thinfer_core::methods::NAMES {
            for data in ["example1", "shapes"] {
                let set = [format!("method.kind={method}"), format!("data.kind={data}")];
                asked.push((format!("{method}+{data}"), String::new(), with_preset(&set)));
            }
        }
    }
    let line = |(name, text, set): &(String, String, Vec<String>)| match Config::parse(text, set) {
        Ok(config) => {
            let toml = config.to_toml().unwrap();
            let json = serde_json::to_string(&config).unwrap();
            assert_eq!(Config::parse(&toml, &[]).unwrap(), config, "{name}");
            assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config, "{name}");
            let [toml, json] = [toml, json].map(|text| crc32fast::hash(text.as_bytes()));
            let fingerprint = config.fingerprint().unwrap();
            format!("{name} {} {fingerprint:08x} {toml:08x} {json:08x}\n", set[0])
        }
        Err(_) => format!("{name} {} refused\n", set[0]),
    };
    asked.iter().map(line).collect()
}

/// A line that changes is a run that no longer knows its own results. A new method or a new file
/// adds lines: `THINFER_UPDATE=1 cargo test -p thinfer-run what_is_written_stays`, which refuses to
/// change a line.
#[test]
fn what_is_written_stays() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/config/tests/pinned.txt");
    let (pinned, now) = (std::fs::read_to_string(path).unwrap_or_default(), lines());
    for line in pinned.lines() {
        assert!(now.lines().any(|other| other == line), "was: {line}");
    }
    if std::env::var_os("THINFER_UPDATE").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), now);
}

/// One of them in full, for the eye.
#[test]
fn a_whole_configuration_is_written_as_ever() {
    let config = Config::parse("data.kind = \"shapes\"\nprune.multiple = 8", &[]).unwrap();
    assert_eq!(config.to_toml().unwrap(), include_str!("pinned.toml"));
}
