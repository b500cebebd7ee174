//! `thinfer --version`: which program this is, and what it can do here.

use std::env::consts::{ARCH, OS};

use clap::error::ErrorKind;
use thinfer_engine::cuda::{self, Report};

/// Whether a line of words that was not taken as a command asks for more than `-V` does.
pub(crate) fn is_asked_in_full(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayVersion
        && std::env::args_os().skip(1).any(|word| word == "--version")
}

/// Version, features, target, and the devices that work here.
pub(crate) fn in_full() -> String {
    text(&cuda::probe())
}

fn text(report: &Report) -> String {
    let with = |there: bool| {
        let named = thinfer::FEATURES.iter().filter(|(_, built)| *built == there);
        named.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    };
    let without = match with(false) {
        none if none.is_empty() => none,
        some => format!("; without {some}"),
    };
    let cuda = match report.device(0) {
        Ok(_) => "can be opened".to_owned(),
        Err(error) => format!("cannot be opened: {error}"),
    };
    let gpus: Vec<String> =
        report.devices.iter().map(|gpu| format!("cuda:{} ({})", gpu.index, gpu.name)).collect();
    let devices = [vec!["cpu".to_owned()], gpus].concat().join(", ");
    format!(
        "thinfer {}\nfeatures: {}{without}\ntarget: {ARCH}-{OS}{}\ndevices: {devices}\nCUDA: {cuda}",
        env!("CARGO_PKG_VERSION"),
        with(true),
        if cfg!(target_env = "musl") { "-musl" } else { "" }
    )
}
