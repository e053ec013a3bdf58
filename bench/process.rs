//! Processes: what one has used so far, read from `/proc`, and servers of our own that never outlive us.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    time::Duration,
};

use crate::{child::Child, error::Error};

/// CPU time that a process has used, in user and system mode, all its threads together.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration, Error> {
    read_cpu(&format!("/proc/{pid}/stat")).map_err(|reason| Error::Proc { pid, reason })
}

/// CPU time of this process. Of itself a process is told to the nanosecond, where `/proc` counts ticks of ten
/// milliseconds.
pub(crate) fn own_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// CPU time of one thread of this process; `None` where the system does not say.
pub(crate) fn own_thread_cpu_time(thread: u32) -> Option<Duration> {
    read_cpu(&format!("/proc/self/task/{thread}/stat")).ok()
}

/// The system's number for the calling thread; `None` where there is no `/proc`.
pub(crate) fn thread_id() -> Option<u32> {
    fs::read_link("/proc/thread-self").ok()?.file_name()?.to_str()?.parse().ok()
}

fn read_cpu(path: &str) -> Result<Duration, String> {
    let stat = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let ticks = cpu_ticks(&stat).ok_or_else(|| format!("{path} has an unknown format"))?;
    Ok(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100).max(1))
}

/// `utime + stime`. The second field is the name in parentheses, which may itself contain spaces and parentheses:
/// counting starts after the last one.
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
pub(crate) struct Memory {
    /// The most since the process started.
    pub(crate) peak_kib: u64,
    pub(crate) now_kib: u64,
}

pub(crate) fn memory(pid: u32) -> Result<Memory, Error> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).map_err(|error| Error::Proc { pid, reason: error.to_string() })?;
    parse_memory(&status).ok_or_else(|| Error::Proc { pid, reason: format!("{path} has an unknown format") })
}

fn parse_memory(status: &str) -> Option<Memory> {
    let kib = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    Some(Memory { peak_kib: kib("VmHWM:")?, now_kib: kib("VmRSS:")? })
}

/// A server that we started, on a loopback port of our choice. It and whatever it starts end with this value.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts `template` with `{port}` replaced by a free port. Its output is kept for the day it fails.
    pub(crate) fn start(template: &str) -> Result<Server, Error> {
        let address = free_port().map_err(Error::io("find a free port"))?;
        let words = words(template, address.port())?;
        let output = tempfile::tempfile().map_err(Error::io("create a temporary file"))?;
        Ok(Server { child: Child::start(&words, output)?, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Fails, with what it said last, if the server has ended.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        self.child.check()
    }

    pub(crate) fn failed(&mut self, what: String) -> Error {
        self.child.failed(what)
    }
}

/// A port that was free a moment ago. Another process may take it first; the server will then say so and end.
fn free_port() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// The command as a shell would split it, but with no shell: the process id must be the server's own.
fn words(template: &str, port: u16) -> Result<Vec<String>, Error> {
    let words = shlex::split(template).ok_or_else(|| Error::Usage(format!("`{template}` has an unfinished quote")))?;
    if !words.iter().any(|word| word.contains("{port}")) {
        return Err(Error::Usage(format!(
            "`{template}` does not contain {{port}}: write it where the server is told its port, as in \
             --listen 127.0.0.1:{{port}}"
        )));
    }
    Ok(words.into_iter().map(|word| word.replace("{port}", &port.to_string())).collect())
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
    fn own_use_can_be_read() {
        cpu_time(std::process::id()).unwrap();
        // Half a tick: less than `/proc` could tell.
        let (before, began) = (own_cpu_time(), Instant::now());
        while own_cpu_time() < before + Duration::from_millis(5) {
            assert!(began.elapsed() < Duration::from_secs(60), "it stands still");
        }
        assert!(!(own_cpu_time() - before).subsec_nanos().is_multiple_of(10_000_000), "it counts ticks");
        let memory = memory(std::process::id()).unwrap();
        assert!(memory.peak_kib >= memory.now_kib && memory.now_kib > 0, "{memory:?}");
        own_thread_cpu_time(thread_id().unwrap()).unwrap();
    }

    #[test]
    fn memory_is_parsed() {
        let status = "Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\n";
        assert_eq!(parse_memory(status), Some(Memory { peak_kib: 2048, now_kib: 1024 }));
        assert_eq!(parse_memory("Name:\tkernel thread\n"), None);
    }

    #[test]
    fn commands_are_split_and_given_their_port() {
        assert_eq!(words("srv --at '127.0.0.1:{port}' 'a b'", 7).unwrap(), ["srv", "--at", "127.0.0.1:7", "a b"]);
        assert!(words("srv --at 127.0.0.1:5100", 7).unwrap_err().to_string().contains("{port}"));
        assert!(words("srv '{port}", 7).is_err());
        assert!(words("", 7).is_err());
    }
}
