//! CPU time, memory and descriptors of processes and threads, read from `/proc`.

use std::{fs, io, time::Duration};

/// CPU time of a process in user and system mode, summed over its threads.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    read_cpu(&format!("/proc/{pid}/stat"))
}

/// CPU time of this process, to the nanosecond. (`/proc` counts ticks of ten milliseconds.)
pub fn own_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// CPU time of a thread of this process; `None` without `/proc`.
pub fn own_thread_cpu_time(thread: u32) -> Option<Duration> {
    read_cpu(&format!("/proc/self/task/{thread}/stat")).ok()
}

/// The id of the calling thread; `None` without `/proc`.
pub fn thread_id() -> Option<u32> {
    fs::read_link("/proc/thread-self").ok()?.file_name()?.to_str()?.parse().ok()
}

fn read_cpu(path: &str) -> io::Result<Duration> {
    let ticks = cpu_ticks(&fs::read_to_string(path)?).ok_or_else(|| unknown(path))?;
    Ok(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100).max(1))
}

/// `utime + stime`. Fields are counted from the last parenthesis, because the name before it may contain spaces and
/// parentheses.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    // After the name comes field 3; utime is field 14 and stime field 15.
    let mut fields = after_name.split_ascii_whitespace().skip(14 - 3);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Resident memory in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Memory {
    /// The maximum since the process started.
    pub peak_kib: u64,
    pub now_kib: u64,
}

/// Resident memory of a process.
pub fn memory(pid: u32) -> io::Result<Memory> {
    let path = format!("/proc/{pid}/status");
    parse_memory(&fs::read_to_string(&path)?).ok_or_else(|| unknown(&path))
}

/// The number of open files and sockets of a process.
pub fn descriptors(pid: u32) -> io::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

fn unknown(path: &str) -> io::Error {
    io::Error::other(format!("{path} has an unknown format"))
}

fn parse_memory(status: &str) -> Option<Memory> {
    let kib = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    Some(Memory { peak_kib: kib("VmHWM:")?, now_kib: kib("VmRSS:")? })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn cpu_ticks_are_found_after_any_name() {
        let numbers = "S 1 2 2 0 -1 4194304 500 0 3 0 120 34 0 0 20 0 3 0 99 1000 200 18446744073709551615";
        for name in ["leaseway", "two words", "odd) S 9 9 (name", ""] {
            assert_eq!(cpu_ticks(&format!("42 ({name}) {numbers}")), Some(154), "name {name:?}");
        }
        assert_eq!(cpu_ticks("42 (cut) S 1 2"), None);
        assert_eq!(cpu_ticks(""), None);
    }

    #[test]
    fn usage_of_this_process_can_be_read() {
        cpu_time(std::process::id()).unwrap();
        // Half a tick, which `/proc` cannot measure.
        let (before, began) = (own_cpu_time(), Instant::now());
        while own_cpu_time() < before + Duration::from_millis(5) {
            assert!(began.elapsed() < Duration::from_secs(60), "CPU time does not advance");
        }
        assert!(!(own_cpu_time() - before).subsec_nanos().is_multiple_of(10_000_000), "it is rounded to ticks");
        let memory = memory(std::process::id()).unwrap();
        assert!(memory.peak_kib >= memory.now_kib && memory.now_kib > 0, "{memory:?}");
        own_thread_cpu_time(thread_id().unwrap()).unwrap();
        let file = fs::File::open("/proc/self/stat").unwrap();
        assert!(descriptors(std::process::id()).unwrap() > 3, "{file:?} is one");
    }

    #[test]
    fn memory_is_parsed() {
        let status = "Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\n";
        assert_eq!(parse_memory(status), Some(Memory { peak_kib: 2048, now_kib: 1024 }));
        assert_eq!(parse_memory("Name:\tkernel thread\n"), None);
    }
}
