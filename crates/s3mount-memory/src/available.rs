//! How much memory there is: on the machine, and in control groups.

use std::path::Path;

/// All memory of the machine, in bytes, if that is known.
#[must_use]
pub fn machine_bytes() -> Option<u64> {
    meminfo("MemTotal:")
}

/// The smallest memory limit of this process's control group and of those above it, in bytes.
#[must_use]
pub fn group_bytes() -> Option<u64> {
    group_bytes_of("self")
}

/// How many bytes the page cache may hold for the process `pid`: the memory that the machine has available
/// (which includes the pages that are cached now), but no more than its control groups allow. `u64::MAX`
/// where nothing is known.
#[must_use]
pub fn page_cache_bytes(pid: u32) -> u64 {
    let available = meminfo("MemAvailable:").unwrap_or(u64::MAX);
    // A process that can't be seen from here has the number 0.
    let group = if pid == 0 { None } else { group_bytes_of(&pid.to_string()) };
    group.map_or(available, |bytes| bytes.min(available))
}

fn meminfo(field: &str) -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn group_bytes_of(process: &str) -> Option<u64> {
    let groups = std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    groups.lines().flat_map(limits_of).min()
}

/// The limits that one line of `/proc/PID/cgroup` leads to. A line is `hierarchy:controllers:path`. Version 2
/// has one line, without controllers.
fn limits_of(line: &str) -> Vec<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let own = Path::new(root).join(path.trim_start_matches('/'));
    own.ancestors()
        .take_while(|group| group.starts_with(root))
        .filter_map(|group| std::fs::read_to_string(group.join(file)).ok()?.trim().parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{machine_bytes, page_cache_bytes};

    #[test]
    fn the_page_cache_holds_no_more_than_the_machine_has() {
        let machine = machine_bytes().expect("the size of this machine");
        for pid in [0, std::process::id()] {
            let bytes = page_cache_bytes(pid);
            assert!((1..machine).contains(&bytes), "{bytes} of {machine}");
        }
        // A process that is gone, or was never there.
        assert!((1..machine).contains(&page_cache_bytes(u32::MAX)));
    }
}
