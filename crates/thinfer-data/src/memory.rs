//! How much memory there is, and whether something fits.

use std::path::Path;

use super::cgroup;
use crate::error::{Error, Result};

/// Memory that can still be taken without swapping: the smaller of what the machine has
/// (`MemAvailable` of `/proc/meminfo`) and of what the control groups of this process leave, and
/// nothing on systems that have neither.
pub fn available_memory() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| kilobytes(&text, "MemAvailable:"));
    [machine, cgroup::left(Path::new("/"))].into_iter().flatten().min()
}

/// Bytes of memory that this process has now; nothing on systems that do not say.
pub fn resident_memory() -> Option<u64> {
    kilobytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Refuses `what` when it needs more `bytes` than are `available`.
///
/// `bytes` is nothing when the size overflowed, which is refused too. Where it is not known how
/// much is available, everything else passes.
pub fn check_memory(what: &str, bytes: Option<u64>, available: Option<u64>) -> Result<()> {
    const ADVICE: &str = "use fewer rows or columns";
    match (bytes, available) {
        (None, _) => Err(Error::Memory(format!(
            "{what} needs more memory than any machine can address; {ADVICE}"
        ))),
        (Some(bytes), Some(available)) if bytes > available => Err(Error::Memory(format!(
            "{what} needs about {} of memory, but only {} are available; {ADVICE}",
            human_bytes(bytes),
            human_bytes(available)
        ))),
        _ => Ok(()),
    }
}

/// A size in the largest binary unit that leaves at least 1, as in `1.5 GiB`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would round to `1024.0`.
    while size >= 1023.95 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_memory_names_both_sizes_and_what_to_do() {
        let refused = check_memory("`x.csv`", Some(3 << 30), Some(1536 << 20)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "`x.csv` needs about 3.0 GiB of memory, but only 1.5 GiB are available; use fewer \
             rows or columns"
        );
        assert!(matches!(refused, Error::Memory(_)));
    }

    #[test]
    fn an_overflowing_size_is_refused_even_where_nothing_is_known() {
        let bytes = u64::MAX.checked_mul(8);
        let refused = check_memory("`x.csv`", bytes, None).unwrap_err();
        assert!(refused.to_string().contains("more memory than any machine"), "{refused}");
    }

    #[test]
    fn what_fits_passes() {
        check_memory("a table", Some(10), Some(10)).unwrap();
        check_memory("a table", Some(u64::MAX), None).unwrap();
    }

    #[test]
    fn sizes_are_in_human_units() {
        assert_eq!(human_bytes(12), "12 bytes");
        assert_eq!(human_bytes(1024), "1.0 KiB");
        assert_eq!(human_bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(human_bytes(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn meminfo_is_read_and_strange_text_is_ignored() {
        let text = "MemTotal:       24631672 kB\nMemAvailable:   23068672 kB\n";
        let available = |text: &str| kilobytes(text, "MemAvailable:");
        assert_eq!(available(text), Some(23_068_672 * 1024));
        assert_eq!(available("MemAvailable: lots"), None);
        assert_eq!(available(""), None);
    }
}
