//! The machine on which something was measured.

use std::{fs, thread, time::SystemTime};

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Cores that this process may use.
    pub(crate) cores: usize,
    pub(crate) cpu: Option<String>,
    pub(crate) kernel: Option<String>,
    pub(crate) version: String,
    pub(crate) optimised: bool,
    /// When the measurement ended.
    pub(crate) at: String,
}

impl Machine {
    pub(crate) fn read() -> Machine {
        let read = |path| fs::read_to_string(path).ok();
        Machine {
            cores: thread::available_parallelism().map_or(1, usize::from),
            cpu: read("/proc/cpuinfo").as_deref().and_then(model),
            kernel: read("/proc/sys/kernel/osrelease").map(|release| release.trim().to_owned()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            optimised: !cfg!(debug_assertions),
            at: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        }
    }

    /// One line, without the time.
    pub(crate) fn text(&self) -> String {
        let Machine { cores, cpu, kernel, version, optimised, .. } = self;
        let cpu = cpu.as_ref().map_or(String::new(), |cpu| format!(" ({cpu})"));
        let kernel = kernel.as_ref().map_or(String::new(), |kernel| format!(", kernel {kernel}"));
        let cores = if *cores == 1 { "1 core".into() } else { format!("{cores} cores") };
        let build = if *optimised { "" } else { ", a debug build" };
        format!("{cores}{cpu}{kernel}; leaseway-bench {version}{build}")
    }
}

fn model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found_if_it_is_there() {
        assert_eq!(model("processor\t: 0\nmodel name\t: Fast 9000\n"), Some("Fast 9000".into()));
        assert_eq!(model("processor\t: 0\n"), None);
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let machine = Machine {
            cores: 1,
            cpu: None,
            kernel: None,
            version: "1.2.3".into(),
            optimised: false,
            at: "2026-01-01T00:00:00Z".into(),
        };
        assert_eq!(machine.text(), "1 core; leaseway-bench 1.2.3, a debug build");
        assert!(Machine::read().cores > 0);
    }
}
