//! `thinfer doctor`: what the machine has.

use serde_json::json;
use thinfer::data::memory::human_bytes;
use thinfer::machine::Cpu;
use thinfer_engine::cuda::{self, Device, Library, Report};

use crate::context::Context;
use crate::device::default_device;
use crate::text_table::align;

/// Say what this machine has to compute with, and what is missing
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  thinfer doctor
  thinfer doctor --json | jq .cuda.libraries")]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, context: &Context) -> anyhow::Result<()> {
    let (cpu, report, cache) = (Cpu::here(), cuda::probe(), cuda::cache_folder());
    let device = default_device(&report).device.to_string();
    let works = report.device(0).is_ok();
    let missing = report.device(0).err().map(|error| error.to_string());
    let library = |library: &Library| {
        json!({
            "name": library.name,
            "found": library.found,
            "problem": library.problem,
            "needed": library.needed,
            "works": library.fits(),
            "get": library.get,
        })
    };
    let gpu = |gpu: &Device| {
        json!({
            "device": format!("cuda:{}", gpu.index),
            "name": gpu.name,
            "capability": format!("{}.{}", gpu.capability.0, gpu.capability.1),
            "memory_bytes": gpu.memory,
            "works": works && gpu.fits(),
        })
    };
    let shown = cache.as_ref().map(|folder| folder.display().to_string());
    let json = json!({
        "thinfer": env!("CARGO_PKG_VERSION"),
        "platform": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        "cpu": cpu,
        "cuda": {
            "works": works,
            "missing": missing,
            "driver": report.driver,
            "problem": report.problem,
            "libraries": report.libraries.iter().map(library).collect::<Vec<_>>(),
            "devices": report.devices.iter().map(gpu).collect::<Vec<_>>(),
        },
        "cache_folder": shown,
        "default_device": device,
    });
    context.result(&json, || {
        let cache = shown.as_deref().unwrap_or("none, as there is no home folder");
        to_text(&cpu, &report, cache, &device)
    })
}

fn to_text(cpu: &Cpu, report: &Report, cache: &str, device: &str) -> String {
    let mut text = format!(
        "thinfer {}\ncpu: {}, cores: {}, vector unit: {}\ncache folder: {cache}\n\n",
        env!("CARGO_PKG_VERSION"),
        cpu.name,
        cpu.cores,
        cpu.vector_unit
    );
    let head = ["for GPUs", "found", "needed", ""];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(report.libraries.iter().map(|library| {
        let state = match (&library.found, &library.problem) {
            (Some(_), _) if library.fits() => "ok",
            (Some(_), _) => "too old",
            (None, Some(_)) => "unusable",
            (None, None) => "missing",
        };
        [library.name, library.shown(), library.needed, state].map(str::to_owned).to_vec()
    }));
    text.push_str(&align(&rows));
    for gpu in &report.devices {
        let (major, minor) = gpu.capability;
        text.push_str(&format!(
            "cuda:{}: {}, compute capability {major}.{minor}, {}{}\n",
            gpu.index,
            gpu.name,
            human_bytes(gpu.memory as u64),
            if gpu.fits() { "" } else { "; too old, 8.0 is needed" }
        ));
    }
    if report.devices.is_empty() {
        text.push_str("no GPU was found\n");
    }
    if let Some(problem) = &report.problem {
        text.push_str(&format!("the driver says: {problem}\n"));
    }
    let mut told: Vec<&str> = Vec::new();
    for library in report.libraries.iter().filter(|library| !library.fits()) {
        // One package may bring several libraries.
        if !told.contains(&library.get) {
            told.push(library.get);
        }
    }
    if !told.is_empty() {
        text.push_str("\nto use a GPU:\n");
        told.iter().for_each(|get| text.push_str(&format!("- {get}\n")));
    }
    text.push_str(&format!("\ncommands run on {device} unless --device says otherwise\n"));
    text
}
