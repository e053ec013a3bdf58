//! Where a server is reached, as its peers tell each other.

use std::fmt;

/// The addresses of one peer. Peers carry them as one text that only servers understand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Services {
    /// For clients.
    pub grpc: String,
    /// For operators; empty if it is not known.
    pub admin: String,
}

impl fmt::Display for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.grpc, self.admin)
    }
}

impl From<&str> for Services {
    fn from(advertised: &str) -> Services {
        let (grpc, admin) = advertised.split_once(' ').unwrap_or((advertised, ""));
        Services { grpc: grpc.to_owned(), admin: admin.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_server_says_another_understands() {
        let services = Services { grpc: "10.0.0.1:5100".into(), admin: "127.0.0.1:5160".into() };
        assert_eq!(Services::from(services.to_string().as_str()), services);
        assert_eq!(Services::from("10.0.0.1:5100").admin, "");
    }
}
