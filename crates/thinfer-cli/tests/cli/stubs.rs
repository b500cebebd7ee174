//! CUDA libraries that are there and cannot be used, made of a few lines of C.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::workspace::{Outcome, Workspace};

/// A driver that lists one GPU.
const DRIVER: &str = r#"
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetAttribute(int *value, int which, int device) { *value = which == 75 ? 9 : 0; return 0; }
int cuDeviceTotalMem_v2(unsigned long *bytes, int device) { *bytes = 1ul << 37; return 0; }
int cuDeviceGetName(char *name, int length, int device) { strncpy(name, "NVIDIA H200", length); return 0; }
"#;
/// A library that has no call at all.
const NOTHING: &str = "int nothing;";

/// Puts libraries into `lib` of a workspace; the C compiler is the one that dependencies need.
fn with_libraries(libraries: &[(&str, &str)]) -> Workspace {
    let workspace = Workspace::new();
    let folder = workspace.path("lib");
    fs::create_dir(&folder).unwrap();
    for (name, source) in libraries {
        let file = folder.join(format!("{name}.c"));
        fs::write(&file, source).unwrap();
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&folder.join(format!("lib{name}.so")), &file])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    workspace
}

fn run(workspace: &Workspace, arguments: &[&str]) -> Outcome {
    let folder: &Path = &workspace.path("lib");
    let mut command = workspace.command();
    let output = command.args(arguments).env("LD_LIBRARY_PATH", folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Outcome { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn a_library_without_its_calls_is_named_and_no_bug() {
    let names = ["cuda", "nvrtc", "cublasLt", "cudnn"];
    let workspace = with_libraries(&names.map(|name| (name, NOTHING)));
    let outcome = run(&workspace, &["doctor", "--json"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let calls = ["cuDriverGetVersion", "nvrtcVersion", "cublasLtGetVersion", "cudnnGetVersion"];
    for (library, call) in report["cuda"]["libraries"].as_array().unwrap().iter().zip(calls) {
        assert_eq!(library["problem"], format!("a library without `{call}`"), "{library}");
        assert!(library["found"].is_null() && library["works"] == false, "{library}");
    }
    let text = run(&workspace, &["doctor"]).stdout;
    assert!(
        text.contains("a library without `nvrtcVersion`") && text.contains("unusable"),
        "{text}"
    );
    let refused = run(&workspace, &["bench", "--device", "cuda"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("found a library without `cuDriverGetVersion`, needed 13.0"));
    // No GPU is listed, so there is none to tell of.
    let outcome = run(&workspace, &["train", "tiny.toml"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("is not used"), "{}", outcome.stderr);
}

#[test]
fn a_gpu_that_is_passed_over_is_told_of() {
    let workspace = with_libraries(&[("cuda", DRIVER), ("nvrtc", NOTHING)]);
    let told = "notice: cuda:0 (NVIDIA H200) is not used: NVRTC: found a library without \
                `nvrtcVersion`, needed 13.0 or newer; install the CUDA 13 toolkit";
    let first = |arguments: &[&str]| {
        let outcome = run(&workspace, arguments);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        outcome.stderr.lines().next().unwrap_or_default().to_owned()
    };
    let train = ["train", "tiny.toml", "--force"];
    let with = |more: &[&'static str]| first(&[&train[..], more].concat());
    assert!(with(&[]).starts_with(told), "{}", with(&[]));
    assert!(with(&["--json"]).starts_with(told));
    assert!(with(&["--device", "cpu"]).starts_with("cpu, "));
    assert_eq!(with(&["--quiet"]), "");
    // The advice is that of an explicit choice.
    let asked = run(&workspace, &["train", "tiny.toml", "--force", "--device", "cuda"]);
    let (_, reason) = asked.stderr.trim_end().split_once("error: ").unwrap();
    assert!(with(&[]).ends_with(reason), "{reason}");
    // A GPU is of no use to look at a run on a table.
    assert_eq!(first(&["eval", "runs/tiny"]), "");
}
