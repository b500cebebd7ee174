//! `doctor`, `selftest`, `bench` and `--device`, where no GPU can be used.

use crate::workspace::Workspace;

#[test]
fn doctor_reports_what_is_there() {
    let workspace = Workspace::new();
    let report = workspace.json(&["doctor"]);
    assert_eq!(report["thinfer"], env!("CARGO_PKG_VERSION"));
    assert!(report["cpu"]["cores"].as_u64().unwrap() >= 1);
    assert!(
        ["AVX-512", "AVX2", "baseline"].contains(&report["cpu"]["vector_unit"].as_str().unwrap())
    );
    assert!(report["cache_folder"].is_string() || report["cache_folder"].is_null());
    let libraries = report["cuda"]["libraries"].as_array().unwrap();
    let names: Vec<&str> = libraries.iter().map(|l| l["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["driver", "NVRTC", "cuBLASLt", "cuDNN"]);
    for library in libraries {
        assert!(library["needed"].is_string() && library["get"].is_string(), "{library}");
        assert!(library["works"] == false || library["found"].is_string(), "{library}");
    }
    assert_eq!(report["cuda"]["works"], false);
    assert!(report["cuda"]["missing"].as_str().unwrap().contains("needed"));
    assert_eq!(report["default_device"], "cpu");
    assert_eq!(report["cuda"]["devices"].as_array().map(Vec::len), Some(0));

    let text = workspace.succeeds(&["doctor"]).stdout;
    for word in ["cpu: ", "cache folder: ", "driver", "cuDNN", "--device"] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
}

#[test]
fn a_gpu_that_does_not_work_is_explained() {
    let workspace = Workspace::new();
    for command in [&["selftest"][..], &["bench"], &["train", "tiny.toml"]] {
        let message = workspace.fails(1, &[command, &["--device", "cuda"]].concat());
        assert!(message.starts_with("error: "), "{message}");
        assert!(message.contains("found") && message.contains("needed"), "{message}");
        assert!(message.contains("install"), "{message}");
    }
    assert!(!workspace.path("runs").exists());
}

#[test]
fn selftest_passes_on_the_cpu() {
    let workspace = Workspace::new();
    let arguments = ["selftest", "--device", "cpu", "--out", "selftest.json"];
    let outcome = workspace.succeeds(&arguments);
    assert_eq!(outcome.stderr.lines().next(), Some("cpu"));
    let last = outcome.stdout.lines().last().unwrap();
    assert!(last.contains(" checks passed, 0 failed"), "{last}");
    let text = std::fs::read_to_string(workspace.path("selftest.json")).unwrap();
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&result["device"], &result["failed"]), (&"cpu".into(), &0.into()));
    let checks = result["checks"].as_array().unwrap();
    assert_eq!(result["passed"], checks.len());
    for check in checks {
        assert!(check["worst"].as_f64().unwrap() <= check["limit"].as_f64().unwrap(), "{check}");
    }
    assert!(workspace.fails(2, &arguments).contains("already exists"));
}

#[test]
fn selftest_runs_the_parts_that_are_asked_for() {
    let workspace = Workspace::new();
    let some = workspace.json(&["selftest", "--device", "cpu", "--only", "noise"]);
    let names: Vec<&str> =
        some["checks"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert!(!names.is_empty() && names.iter().all(|name| name.contains("noise")), "{names:?}");
    let error = workspace.fails(2, &["selftest", "--device", "cpu", "--only", "sound"]);
    assert!(error.contains("`--only`: is sound, which no part has"), "{error}");
}

#[test]
fn bench_on_the_cpu_has_all_its_numbers() {
    let workspace = Workspace::new();
    let arguments = ["bench", "--device", "cpu", "--model", "lenet", "--batch", "4"];
    let result = workspace.json(&arguments);
    assert_eq!((&result["device"], &result["batch"]), (&"cpu".into(), &4.into()));
    assert_eq!((&result["model"], &result["precision"]), (&"lenet".into(), &"f32".into()));
    assert_eq!(result["parameters"], 61_706);
    assert!(result["milliseconds"]["data"].is_null());
    for number in [
        "/milliseconds/forward",
        "/milliseconds/backward",
        "/milliseconds/update",
        "/milliseconds/step",
        "/images_per_second",
        "/limits/copy_bytes_per_second",
        "/limits/update_of_copy",
        "/limits/matrix_flops",
        "/limits/gradient_of_matrix",
        "/memory_bytes",
        "/startup_seconds",
    ] {
        let value = result.pointer(number).and_then(serde_json::Value::as_f64);
        assert!(value.is_some_and(|v| v >= 0.0), "{number}: {value:?}");
    }
    assert!(result["milliseconds"]["step"].as_f64().unwrap() > 0.0);
    assert!(result.get("threads").is_some() && result.get("memory").is_some());
}

#[test]
fn bench_refuses_what_it_cannot_do() {
    let workspace = Workspace::new();
    let cpu = ["bench", "--device", "cpu"];
    let message = workspace.fails(2, &[&cpu[..], &["--precision", "bf16"]].concat());
    assert!(message.contains("computes in f32"), "{message}");
    let message = workspace.fails(2, &[&cpu[..], &["--model", "resnet19"]].concat());
    assert!(message.contains("known are convnet"), "{message}");
    workspace.fails(2, &[&cpu[..], &["--batch", "0"]].concat());
    let message = workspace.fails(2, &[&cpu[..], &["--model", "wrn-1000000-10"]].concat());
    assert!(message.contains("depth may be at most 2000"), "{message}");
    let message =
        workspace.fails(2, &[&cpu[..], &["--updates", "--model", "wrn-28-1000"]].concat());
    assert!(message.contains("width at most 100"), "{message}");
    #[cfg(target_os = "linux")]
    {
        let message = workspace.fails(1, &[&cpu[..], &["--batch", "1000000000"]].concat());
        assert!(message.contains("lower --batch, the largest that fits is "), "{message}");
        let message = workspace.fails(1, &[&cpu[..], &["--model", "wrn-1996-100"]].concat());
        assert!(message.contains("choose a smaller one with --model"), "{message}");
    }
}

#[test]
fn devices_that_do_not_exist_are_refused() {
    let workspace = Workspace::new();
    for command in
        [&["train", "tiny.toml"][..], &["selftest"], &["bench"], &["reproduce", "table4"]]
    {
        let message = workspace.fails(2, &[command, &["--device", "nonsense"]].concat());
        assert!(message.contains("invalid value 'nonsense' for '--device <DEVICE>'"), "{message}");
        assert!(message.contains("cpu, cuda (the first GPU) and cuda:N"), "{message}");
    }
}

#[test]
fn studies_of_small_networks_stay_on_the_cpu() {
    let workspace = Workspace::new();
    workspace.write("table.csv", "x,y\n1,2\n");
    for command in [&["select", "table.csv", "--target", "y"][..], &["reproduce", "table4"]] {
        let message = workspace.fails(2, &[command, &["--device", "cuda"]].concat());
        assert!(message.contains("far too small for a GPU"), "{message}");
    }
}
