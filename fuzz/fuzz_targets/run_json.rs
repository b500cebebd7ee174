//! Fuzzes the reader of the format `run_json`.
#![no_main]

use thinfer_fuzz::{check, prepare};

libfuzzer_sys::fuzz_target!(init: prepare(), |bytes: &[u8]| check("run_json", bytes));
