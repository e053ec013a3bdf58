//! The standard `process_*` metrics, read from /proc. Without /proc they are missing.

use std::{fs, path::Path};

use metrics::{counter, describe_counter, describe_gauge, gauge};

const CPU: &str = "process_cpu_seconds_total";
const RESIDENT: &str = "process_resident_memory_bytes";
const VIRTUAL: &str = "process_virtual_memory_bytes";
const OPEN: &str = "process_open_fds";
const MOST: &str = "process_max_fds";
const START: &str = "process_start_time_seconds";
const THREADS: &str = "process_threads";

pub(super) fn describe() {
    describe_counter!(CPU, "User and system CPU time, in whole seconds.");
    for (name, help) in [
        (RESIDENT, "Resident memory in bytes."),
        (VIRTUAL, "Virtual memory in bytes."),
        (OPEN, "Open file descriptors, including connections."),
        (MOST, "Maximum number of open file descriptors."),
        (START, "Start time of the process, in seconds since the epoch."),
        (THREADS, "Number of operating system threads."),
    ] {
        describe_gauge!(name, help);
    }
}

pub(crate) fn set() {
    let Some(stat) = fs::read_to_string("/proc/self/stat").ok().and_then(|text| Stat::read(&text)) else { return };
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    counter!(CPU).absolute((stat.cpu_ticks as f64 / ticks) as u64);
    gauge!(RESIDENT).set(stat.resident_pages as f64 * rustix::param::page_size() as f64);
    gauge!(VIRTUAL).set(stat.virtual_bytes as f64);
    gauge!(THREADS).set(stat.threads as f64);
    if let Some(boot) = boot_time() {
        gauge!(START).set(boot as f64 + stat.start_ticks as f64 / ticks);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // Excludes the descriptor of the directory itself.
        gauge!(OPEN).set(open.count().saturating_sub(1) as f64);
    }
    if let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        gauge!(MOST).set(most as f64);
    }
}

/// Free bytes, for users other than root, on the file system of a directory.
pub(crate) fn free_bytes(directory: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Fields of /proc/self/stat.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    /// Since boot.
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    /// The process name is in parentheses and may contain some, so fields are counted after the last `)`.
    fn read(text: &str) -> Option<Stat> {
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // Numbered as in proc(5), where the first of these is 3.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Stat {
            cpu_ticks: field(14)? + field(15)?,
            threads: field(20)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

fn boot_time() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_names_may_look_like_fields() {
        let text =
            "42 (a) 1 (b) S 1 42 42 0 -1 4194560 100 0 0 0 7 5 0 0 20 0 9 0 1234 1000000 250 18446744073709551615";
        let stat = Stat { cpu_ticks: 12, threads: 9, start_ticks: 1234, virtual_bytes: 1_000_000, resident_pages: 250 };
        assert_eq!(Stat::read(text), Some(stat));
        assert_eq!(Stat::read("42 (a) S 1"), None);
    }
}
