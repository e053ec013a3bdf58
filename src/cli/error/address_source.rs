//! Where the addresses come from that a command asks at, for errors that say how to name others.

use std::{env, fmt, path::PathBuf};

/// Which addresses of a node a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    Clients,
    Operators,
}

impl Port {
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Port::Clients => "--server",
            Port::Operators => "--admin",
        }
    }

    pub(crate) fn variable(self) -> &'static str {
        match self {
            Port::Clients => "LEASEWAY_SERVER",
            Port::Operators => "LEASEWAY_ADMIN",
        }
    }

    pub(crate) fn default_address(self) -> &'static str {
        match self {
            Port::Clients => "127.0.0.1:5100",
            Port::Operators => "127.0.0.1:5160",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AddressSource {
    /// A flag, or another server.
    Told(Port),
    Variable(Port),
    /// The file of a running `leaseway up`.
    Up {
        process: u32,
        file: PathBuf,
    },
    /// Nothing else is known. `ended`: the process ID of a killed `leaseway up` that served there.
    Default {
        port: Port,
        ended: Option<u32>,
    },
}

impl fmt::Display for AddressSource {
    /// A sentence for an error. It advises nothing that could hand out capacity a second time, such as to start another
    /// server in the place of peers that are down.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressSource::Told(port) => write!(f, "{} takes several addresses, separated by commas", port.flag()),
            AddressSource::Variable(port) => {
                write!(f, "The address is from {}; {} overrides it", port.variable(), port.flag())
            }
            AddressSource::Up { process, file } => write!(
                f,
                "The addresses are those of `leaseway up`, process {process}, as written in {}",
                file.display()
            ),
            AddressSource::Default { port, ended: Some(process) } => write!(
                f,
                "This is the default address. `leaseway up`, process {process}, served there and was killed; if started \
                 again in the same directory it remembers its promises. {} names other addresses",
                port.flag()
            ),
            AddressSource::Default { port, ended: None } => write!(
                f,
                "This is the default address; {} or {} names others, separated by commas. `leaseway --help` shows how to \
                 try leaseway",
                port.flag(),
                port.variable()
            ),
        }
    }
}

impl AddressSource {
    /// Of addresses that a command was told.
    pub(crate) fn of_told(port: Port) -> AddressSource {
        let is_flag =
            |word: String| word.strip_prefix(port.flag()).is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
        let by_flag = env::args_os().any(|word| word.into_string().is_ok_and(is_flag));
        let is_set = env::var_os(port.variable()).is_some_and(|value| !value.is_empty());
        if is_set && !by_flag { AddressSource::Variable(port) } else { AddressSource::Told(port) }
    }
}
