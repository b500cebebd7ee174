//! Fuzzes the reader of the format `cifar_pickle`.
#![no_main]

use thinfer_fuzz::{check, prepare};

libfuzzer_sys::fuzz_target!(init: prepare(), |bytes: &[u8]| check("cifar_pickle", bytes));
