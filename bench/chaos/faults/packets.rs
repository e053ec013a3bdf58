//! Links that lose and reorder packets, in a network namespace. As between hosts, the kernel retransmits, backs off,
//! and waits for dead connections.
//!
//! Rules match packets by the port of a link, so that each link has its own state. The namespace and its rules end with
//! the last process in it.

use std::{
    env, fmt, fs,
    io::Write as _,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::error::Error;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LinkState {
    pub(crate) cut_there: bool,
    pub(crate) cut_back: bool,
    pub(crate) delay: Duration,
    /// The additional delay towards the target. The longer of the two delays applies.
    pub(crate) delay_there: Duration,
    pub(crate) stalled: Stalled,
    /// Lost packets per thousand, in each direction.
    pub(crate) lost_per_mille: u16,
    pub(crate) late_per_mille: u16,
}

/// The connections that stall: their data towards the target is held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stalled {
    #[default]
    Nothing,
    /// Connections that existed when the stall began.
    Older,
    /// Connections made since then. Older ones resume.
    Newer,
}

/// The environment variable that is set for the program inside the namespace.
const INSIDE: &str = "LEASEWAY_BENCH_NAMESPACE";

/// The required tools, each with its Debian package.
const TOOLS: [(&str, &str); 4] =
    [("unshare", "util-linux"), ("ip", "iproute2"), ("tc", "iproute2"), ("iptables-restore", "iptables")];

/// Packets that are to be reordered go through a queue that drains at this rate. Packets beyond its length are lost.
const SLOW_LINE: &str = "4mbit";
const SLOW_QUEUE: &str = "100";

/// Restarts this program inside a network namespace. Returns only inside it.
pub(crate) fn enter() -> Result<(), Error> {
    if env::var_os(INSIDE).is_some() {
        return prepare();
    }
    for (tool, package) in TOOLS {
        let found = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        if found.and_then(|mut child| child.wait()).is_err() {
            return Err(Error::Usage(format!("--namespace needs `{tool}`: install {package}, or omit --namespace")));
        }
    }
    // A user other than root may be root inside a namespace.
    let made = |flags: &[&str]| {
        Command::new("unshare").args(flags).arg("true").output().is_ok_and(|output| output.status.success())
    };
    let flags = [&["--net"][..], &["--net", "--map-root-user"]];
    let Some(flags) = flags.into_iter().find(|flags| made(flags)) else {
        let told = "--namespace: cannot create a network namespace: run as root, or omit --namespace";
        return Err(Error::Usage(told.into()));
    };
    let program = env::current_exe().map_err(Error::io("find this program"))?;
    let error = Command::new("unshare").args(flags).arg(program).args(env::args_os().skip(1)).env(INSIDE, "1").exec();
    Err(Error::io("run this program in a network namespace")(error))
}

/// Sets the usual packet size, and creates the slow queue.
fn prepare() -> Result<(), Error> {
    run("ip", &["link", "set", "lo", "mtu", "1500", "up"], "")?;
    for words in [
        "qdisc add dev lo root handle 1: htb default 1 r2q 1000",
        "class add dev lo parent 1: classid 1:1 htb rate 10gbit quantum 60000",
        &format!("class add dev lo parent 1: classid 1:2 htb rate {SLOW_LINE} burst 1500 quantum 1500"),
        &format!("qdisc add dev lo parent 1:2 pfifo limit {SLOW_QUEUE}"),
    ] {
        run("tc", &words.split(' ').collect::<Vec<_>>(), "")?;
    }
    put(&[])
}

fn run(program: &str, words: &[&str], input: &str) -> Result<(), Error> {
    let doing = Error::io("set up links in a network namespace");
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.spawn().and_then(|mut child| {
        child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()))?;
        child.wait_with_output()
    });
    let output = output.map_err(doing)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let words = words.join(" ");
    Err(Error::Usage(format!("`{program} {words}` failed: {}; omit --namespace", said.trim())))
}

/// Applies the state of each link, identified by its port.
pub(crate) fn put(links: &[(u16, LinkState)]) -> Result<(), Error> {
    run("iptables-restore", &[], &rules(links))
}

fn rules(links: &[(u16, LinkState)]) -> String {
    let mut filter = Vec::new();
    let mut mangle = Vec::new();
    for (port, state) in links {
        for (is_cut, end) in [(state.cut_there, "dport"), (state.cut_back, "sport")] {
            let matches = format!("-p tcp --{end} {port}");
            let sometimes = |per_mille: u16| format!("-m statistic --mode random --probability 0.{per_mille:03}");
            if is_cut {
                filter.push(format!("-A INPUT {matches} -j DROP"));
            } else if state.lost_per_mille > 0 {
                filter.push(format!("-A INPUT {matches} {} -j DROP", sometimes(state.lost_per_mille)));
            }
            if state.late_per_mille > 0 {
                let late = sometimes(state.late_per_mille);
                mangle.push(format!("-A POSTROUTING {matches} {late} -j CLASSIFY --set-class 1:2"));
            }
        }
    }
    let table = |name: &str, rules: &[String]| {
        format!("*{name}\n{}COMMIT\n", rules.iter().map(|rule| format!("{rule}\n")).collect::<String>())
    };
    table("filter", &filter) + &table("mangle", &mangle)
}

/// Counters of the kernel in this namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct PacketCounts {
    /// TCP segments that were retransmitted.
    pub(crate) sent_again: u64,
    /// TCP segments that arrived out of order.
    pub(crate) out_of_order: u64,
}

impl PacketCounts {
    pub(crate) fn read() -> PacketCounts {
        let file = |name: &str| fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default();
        PacketCounts {
            sent_again: count(&file("snmp"), "Tcp:", "RetransSegs"),
            out_of_order: count(&file("netstat"), "TcpExt:", "TCPOFOQueue"),
        }
    }

    pub(crate) fn since(self, before: PacketCounts) -> PacketCounts {
        PacketCounts {
            sent_again: self.sent_again - before.sent_again,
            out_of_order: self.out_of_order - before.out_of_order,
        }
    }

    pub(crate) fn and(self, other: PacketCounts) -> PacketCounts {
        PacketCounts {
            sent_again: self.sent_again + other.sent_again,
            out_of_order: self.out_of_order + other.out_of_order,
        }
    }
}

impl fmt::Display for PacketCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PacketCounts { sent_again, out_of_order } = self;
        write!(f, "The kernel retransmitted {sent_again} segments, and {out_of_order} arrived out of order.")
    }
}

/// A value from a table of two lines, of which the first one has the names.
fn count(text: &str, line: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|one| one.strip_prefix(line)).map(str::split_whitespace);
    let (names, numbers) = (lines.next().into_iter().flatten(), lines.next().into_iter().flatten());
    let found = names.zip(numbers).find(|(one, _)| *one == name);
    found.and_then(|(_, number)| number.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_rules_match_the_port_of_a_link() {
        let cut = LinkState { cut_there: true, lost_per_mille: 50, ..LinkState::default() };
        let bad = LinkState { lost_per_mille: 5, late_per_mille: 300, ..LinkState::default() };
        let expected = "*filter
-A INPUT -p tcp --dport 71 -j DROP
-A INPUT -p tcp --sport 71 -m statistic --mode random --probability 0.050 -j DROP
-A INPUT -p tcp --dport 72 -m statistic --mode random --probability 0.005 -j DROP
-A INPUT -p tcp --sport 72 -m statistic --mode random --probability 0.005 -j DROP
COMMIT
*mangle
-A POSTROUTING -p tcp --dport 72 -m statistic --mode random --probability 0.300 -j CLASSIFY --set-class 1:2
-A POSTROUTING -p tcp --sport 72 -m statistic --mode random --probability 0.300 -j CLASSIFY --set-class 1:2
COMMIT
";
        assert_eq!(rules(&[(71, cut), (72, bad), (73, LinkState::default())]), expected);
    }

    #[test]
    fn kernel_counters_are_found_by_name() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: OutSegs RetransSegs InErrs\nTcp: 10 7 0\n";
        assert_eq!((count(text, "Tcp:", "RetransSegs"), count(text, "Tcp:", "None")), (7, 0));
    }
}
