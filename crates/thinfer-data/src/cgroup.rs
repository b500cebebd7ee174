//! The memory that control groups leave to this process, as containers and batch systems set it.

use std::fs;
use std::path::{Path, PathBuf};

/// The files of one version of control groups.
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// What the group's files in memory are called, which the system takes back when it has to.
    cached: [&'static str; 2],
}

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cached: ["total_inactive_file", "total_active_file"],
};

const VERSION_2: Files = Files {
    limit: "memory.max",
    usage: "memory.current",
    cached: ["inactive_file", "active_file"],
};

/// Bytes that the groups of this process leave, also those that its own group is in; nothing where
/// none has a limit. `root` is `/`, and another place in tests.
pub(super) fn left(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let left = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        let version_2 = controllers.is_empty();
        if !version_2 && !controllers.split(',').any(|name| name == "memory") {
            return None;
        }
        let mount = mounts.lines().find_map(|line| Mount::of(line, version_2))?;
        left_in(root, &mount, group, if version_2 { &VERSION_2 } else { &VERSION_1 })
    });
    left.min()
}

/// Where groups are shown.
struct Mount<'a> {
    /// The group that is shown at `at`.
    top: &'a str,
    at: &'a str,
}

impl<'a> Mount<'a> {
    /// Of a line of `mountinfo`: number, parent, device, top, place, options, …, `-`, kind, source,
    /// options of the kind.
    fn of(line: &'a str, version_2: bool) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let found = match kind.next()? {
            "cgroup2" => version_2,
            "cgroup" => !version_2 && kind.nth(1)?.split(',').any(|option| option == "memory"),
            _ => false,
        };
        let mut place = place.split(' ').skip(3);
        let (top, at) = (place.next()?, place.next()?);
        found.then_some(Mount { top, at })
    }
}

/// The least that a group and those around it leave.
fn left_in(root: &Path, mount: &Mount<'_>, group: &str, files: &Files) -> Option<u64> {
    let top = root.join(mount.at.trim_start_matches('/'));
    // A container may see its own group as the top, whatever the name outside.
    let below = Path::new(group).strip_prefix(mount.top).ok();
    let own: PathBuf = match below {
        Some(below) if top.join(below).is_dir() => top.join(below),
        _ => top.clone(),
    };
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let groups = own.ancestors().take_while(|folder| folder.starts_with(&top));
    let left = groups.filter_map(|folder| {
        // `max` is no number, and no limit.
        let limit = number(folder.join(files.limit))?;
        let usage = number(folder.join(files.usage)).unwrap_or(0);
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let cached: u64 = files.cached.iter().filter_map(|name| entry(&stat, name)).sum();
        Some(limit.saturating_sub(usage.saturating_sub(cached)))
    });
    left.min()
}

/// The number after a name at the start of a line.
fn entry(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MOUNTS_2: (&str, &str) = (
        "proc/self/mountinfo",
        "23 1 0:5 / /proc rw - proc proc rw\n31 23 0:28 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n",
    );

    #[test]
    fn the_least_of_a_group_and_its_parents_counts() {
        let files = [
            MOUNTS_2,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "5000\n"),
            ("sys/fs/cgroup/a/memory.current", "1000\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 700\nactive_file 100\ninactive_file 200\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "10\n"),
        ];
        assert_eq!(left(system(&files).path()), Some(5000 - 700));
        let mut own = files.to_vec();
        own[5].1 = "2000\n";
        assert_eq!(left(system(&own).path()), Some(1990));
        own[6].1 = "3000\n";
        assert_eq!(left(system(&own).path()), Some(0), "already above the limit");
    }

    #[test]
    fn the_first_version_is_read_too_and_its_largest_number_is_no_limit() {
        let mounts = "35 31 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n36 31 0:33 /job /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let files = [
            ("proc/self/mountinfo", mounts),
            ("proc/self/cgroup", "3:cpu:/job\n4:memory:/job/step\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/step/memory.limit_in_bytes", "8000\n"),
            ("sys/fs/cgroup/memory/step/memory.usage_in_bytes", "3000\n"),
            ("sys/fs/cgroup/memory/step/memory.stat", "total_inactive_file 1000\n"),
        ];
        assert_eq!(left(system(&files).path()), Some(6000));
    }

    #[test]
    fn a_container_that_sees_its_group_as_the_top_is_limited_by_it() {
        let files = [
            MOUNTS_2,
            ("proc/self/cgroup", "0::/outside/name\n"),
            ("sys/fs/cgroup/memory.max", "4096\n"),
        ];
        assert_eq!(left(system(&files).path()), Some(4096));
    }

    #[test]
    fn without_groups_or_limits_nothing_is_said() {
        assert_eq!(left(system(&[]).path()), None);
        let none = [MOUNTS_2, ("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "max")];
        assert_eq!(left(system(&none).path()), None);
        let strange = [("proc/self/mountinfo", "x - cgroup2"), ("proc/self/cgroup", "?\n0::/x")];
        assert_eq!(left(system(&strange).path()), None);
    }
}
