//! `leaseway gateway --ratelimit-env`: the environment variables of envoyproxy/ratelimit, as flags. A deployment of it can
//! keep its variables when it changes to a gateway.

use std::{collections::BTreeMap, ffi::OsString, fmt, path::Path};

/// The flag that asks for this.
const FLAG: &str = "--ratelimit-env";

/// The name of the program of envoyproxy/ratelimit. Under this name `leaseway` is a gateway in its place, for deployments
/// whose command is fixed. It ignores arguments, as the original does; variables set all flags.
const PROGRAM: &str = "ratelimit";

/// Variables without an effect here, or the first letters of several: storage, which the cluster replaces, statistics of
/// statsd, traces, and details of connections.
const WITHOUT_EFFECT: [&str; 24] = [
    "BACKEND_TYPE",
    "CACHE_KEY_PREFIX",
    "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
    "DISABLE_STATS",
    "DOG_STATSD_",
    "EXPIRATION_JITTER_MAX_SECONDS",
    "EXTRA_TAGS",
    "FORCE_START_WITHOUT_INITIAL_CONFIG",
    "GRPC_MAX_CONNECTION_",
    "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
    "LOCAL_CACHE_SIZE_IN_BYTES",
    "MEMCACHE_",
    "NEAR_LIMIT_RATIO",
    "PROMETHEUS_MAPPER_YAML",
    "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
    "REDIS_",
    "RUNTIME_IGNOREDOTFILES",
    "RUNTIME_WATCH_ROOT",
    "STATS_FLUSH_INTERVAL",
    "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
    "TRACING_",
    "USE_DOG_STATSD",
    "USE_DOG_STATSD_MOGRIFIERS",
    "XDS_CLIENT_",
];

/// Variables that cannot be followed, and what to do instead. Without them a gateway would be less safe than it seems, or
/// could not be reached.
const REFUSED: [(&str, &str); 4] = [
    ("GRPC_UDS", "a gateway does not listen on Unix sockets: unset it, and set GRPC_HOST and GRPC_PORT"),
    (
        "GRPC_CLIENT_TLS_SAN",
        "unset it: an access policy (`access:` in the file of --config) decides which certificates may call",
    ),
    (
        "CONFIG_GRPC_XDS_SERVER_TLS_SAN",
        "unset it: the certificate of the control plane must be for the host in CONFIG_GRPC_XDS_SERVER_URL",
    ),
    (
        "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        "unset it: a gateway sends no headers except a bearer token, which it reads from the file of --rls-xds-token-file",
    ),
];

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadVariable {
    name: &'static str,
    why: String,
}

impl fmt::Display for BadVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FLAG}: {}: {}", self.name, self.why)
    }
}

/// A command line, and the variables and arguments that have no effect on it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expanded {
    pub(crate) arguments: Vec<OsString>,
    pub(crate) without_effect: Vec<String>,
}

/// Adds the flags that follow from `variables`, if the command line asks for that. Flags that are given, or set by
/// variables of Leaseway, take precedence.
pub(crate) fn expand(
    mut arguments: Vec<OsString>,
    variables: &BTreeMap<String, String>,
) -> Result<Expanded, BadVariable> {
    let is_in_place = arguments.first().is_some_and(|program| Path::new(program).file_name() == Some(PROGRAM.as_ref()));
    let mut without_effect = Vec::new();
    if is_in_place {
        let ignored = arguments.splice(1.., ["gateway".into(), FLAG.into()]);
        without_effect.extend(ignored.map(|word| word.to_string_lossy().into_owned()));
    }
    let is_gateway = arguments.get(1).is_some_and(|word| word == "gateway");
    let is_asked = arguments.iter().any(|word| word == FLAG)
        || variables.get("LEASEWAY_RATELIMIT_ENV").is_some_and(|value| value == "true");
    if !is_gateway || !is_asked {
        return Ok(Expanded { arguments, without_effect: Vec::new() });
    }
    let mut flags = Flags { arguments, variables };
    flags.set("--declare", is_in_place);
    for (name, why) in REFUSED {
        if flags.text(name).is_some() {
            return Err(BadVariable { name, why: why.to_owned() });
        }
    }
    flags.listeners()?;
    flags.rules()?;
    flags.answers()?;
    flags.logs()?;
    let has_no_effect = |name: &&String| {
        let is_of = |known: &str| *name == known || (known.ends_with('_') && name.starts_with(known));
        WITHOUT_EFFECT.iter().any(|known| is_of(known))
    };
    without_effect.extend(variables.keys().filter(has_no_effect).cloned());
    Ok(Expanded { arguments: flags.arguments, without_effect })
}

struct Flags<'v> {
    arguments: Vec<OsString>,
    variables: &'v BTreeMap<String, String>,
}

impl Flags<'_> {
    /// The value of a variable that is set and not empty.
    fn text(&self, name: &str) -> Option<String> {
        self.variables.get(name).filter(|value| !value.is_empty()).cloned()
    }

    fn or(&self, name: &str, default: &str) -> String {
        self.text(name).unwrap_or_else(|| default.to_owned())
    }

    /// The words that Go reads as booleans.
    fn flag(&self, name: &'static str) -> Result<bool, BadVariable> {
        match self.text(name).as_deref() {
            None | Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
            Some(other) => Err(BadVariable { name, why: format!("`{other}`: expected true or false") }),
        }
    }

    fn is_given(&self, flag: &str) -> bool {
        let variable = format!("LEASEWAY_{}", flag.trim_start_matches('-').replace('-', "_").to_uppercase());
        let is_this = |word: &OsString| {
            word.to_str()
                .and_then(|word| word.strip_prefix(flag))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        };
        self.arguments.iter().any(is_this) || self.text(&variable).is_some()
    }

    fn add(&mut self, flag: &str, value: Option<String>) {
        if let Some(value) = value.filter(|_| !self.is_given(flag)) {
            self.arguments.push(format!("{flag}={value}").into());
        }
    }

    fn set(&mut self, flag: &str, is_set: bool) {
        if is_set && !self.is_given(flag) {
            self.arguments.push(flag.into());
        }
    }

    fn listeners(&mut self) -> Result<(), BadVariable> {
        let rls = format!("{}:{}", self.or("GRPC_HOST", "0.0.0.0"), self.or("GRPC_PORT", "8081"));
        self.add("--rls", Some(rls));
        // Like the original's, it has no TLS.
        let http = format!("{}:{}", self.or("HOST", "0.0.0.0"), self.or("PORT", "8080"));
        let is_over_tls = self.flag("GRPC_SERVER_USE_TLS")? || self.is_given("--tls-cert");
        let is_listening = self.is_given("--probes") || self.is_given("--rls-http");
        self.add(if is_over_tls { "--probes" } else { "--rls-http" }, Some(http).filter(|_| !is_listening));
        let debug = format!("{}:{}", self.or("DEBUG_HOST", "0.0.0.0"), self.or("DEBUG_PORT", "6070"));
        self.add("--rls-debug", Some(debug));
        if self.flag("USE_PROMETHEUS")? {
            let path = self.or("PROMETHEUS_PATH", "/metrics");
            if path != "/metrics" {
                let why = format!("`{path}`: a gateway serves its metrics at /metrics only; unset it");
                return Err(BadVariable { name: "PROMETHEUS_PATH", why });
            }
            let address = self.or("PROMETHEUS_ADDR", ":9090");
            let address = if address.starts_with(':') { format!("0.0.0.0{address}") } else { address };
            self.add("--metrics", Some(address));
            self.set("--plain-metrics", true);
            self.set("--rls-ratelimit-metrics", true);
        } else if self.text("STATSD_HOST").is_some() && self.text("USE_STATSD").is_none() || self.flag("USE_STATSD")? {
            let (host, port) = (self.or("STATSD_HOST", "localhost"), self.or("STATSD_PORT", "8125"));
            let statsd = format!("{}://{host}:{port}", self.or("STATSD_PROTOCOL", "tcp"));
            self.add("--rls-statsd", Some(statsd));
        }
        if self.flag("GRPC_SERVER_USE_TLS")? {
            for (name, flag) in [
                ("GRPC_SERVER_TLS_CERT", "--tls-cert"),
                ("GRPC_SERVER_TLS_KEY", "--tls-key"),
                ("GRPC_CLIENT_TLS_CACERT", "--tls-ca"),
            ] {
                let file = self.text(name);
                self.add(flag, file);
            }
        }
        Ok(())
    }

    fn rules(&mut self) -> Result<(), BadVariable> {
        let merge = self.flag("MERGE_DOMAIN_CONFIG")?;
        self.set("--rls-merge-domains", merge);
        if self.is_given("--ratelimit-config") || self.is_given("--rls-xds") {
            return Ok(());
        }
        match &*self.or("CONFIG_TYPE", "FILE") {
            "FILE" => {
                let root = self.or("RUNTIME_ROOT", "/srv/runtime_data/current");
                let parts = [self.text("RUNTIME_SUBDIRECTORY"), Some(self.or("RUNTIME_APPDIRECTORY", "config"))];
                let path = [Some(root)].into_iter().chain(parts).flatten().collect::<Vec<_>>().join("/");
                self.add("--ratelimit-config", Some(path));
                Ok(())
            }
            "GRPC_XDS_SOTW" => self.control_plane(),
            other => {
                let why = format!("`{other}`: expected FILE or GRPC_XDS_SOTW");
                Err(BadVariable { name: "CONFIG_TYPE", why })
            }
        }
    }

    fn control_plane(&mut self) -> Result<(), BadVariable> {
        let scheme = if self.flag("CONFIG_GRPC_XDS_SERVER_USE_TLS")? { "https" } else { "http" };
        let server = self.or("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000");
        self.add("--rls-xds", Some(format!("{scheme}://{server}")));
        let node = self.text("CONFIG_GRPC_XDS_NODE_ID");
        self.add("--rls-xds-node", node);
        let metadata = self.text("CONFIG_GRPC_XDS_NODE_METADATA");
        self.add("--rls-xds-metadata", metadata);
        if scheme == "https" {
            let ca = self.text("CONFIG_GRPC_XDS_SERVER_TLS_CACERT");
            self.add("--rls-xds-ca", ca);
            for (name, server) in [
                ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "GRPC_SERVER_TLS_CERT"),
                ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "GRPC_SERVER_TLS_KEY"),
            ] {
                if self.text(name).is_some_and(|file| Some(file) != self.text(server)) {
                    let why = format!(
                        "set it to the same file as {server}, or unset it: a gateway has only one certificate (--tls-cert)"
                    );
                    return Err(BadVariable { name, why });
                }
            }
        }
        Ok(())
    }

    fn answers(&mut self) -> Result<(), BadVariable> {
        for (name, flag) in [
            ("SHADOW_MODE", "--rls-shadow-mode"),
            ("QUOTA_MODE", "--rls-quota-mode"),
            ("RESPONSE_DYNAMIC_METADATA", "--rls-dynamic-metadata"),
        ] {
            let is_set = self.flag(name)?;
            self.set(flag, is_set);
        }
        if self.flag("LIMIT_RESPONSE_HEADERS_ENABLED")? {
            let names = [
                self.or("LIMIT_LIMIT_HEADER", "RateLimit-Limit"),
                self.or("LIMIT_REMAINING_HEADER", "RateLimit-Remaining"),
                self.or("LIMIT_RESET_HEADER", "RateLimit-Reset"),
            ];
            self.add("--rls-headers", Some(names.join(",")));
        }
        Ok(())
    }

    fn logs(&mut self) -> Result<(), BadVariable> {
        let level = self.text("LOG_LEVEL").map(|level| match level.to_lowercase().as_str() {
            "warning" => "warn".to_owned(),
            "fatal" | "panic" => "error".to_owned(),
            other => other.to_owned(),
        });
        self.add("--log", level);
        let format = self.text("LOG_FORMAT");
        if format.as_deref().is_some_and(|format| format != "text" && format != "json") {
            return Err(BadVariable { name: "LOG_FORMAT", why: "expected text or json".to_owned() });
        }
        self.add("--log-format", format);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(arguments: &[&str], variables: &[(&str, &str)]) -> Result<(Vec<String>, Vec<String>), String> {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let all = [&["leaseway", "gateway", FLAG], arguments].concat().into_iter().map(OsString::from).collect();
        let Expanded { arguments, without_effect } = expand(all, &variables).map_err(|error| error.to_string())?;
        let added = arguments.into_iter().skip(3).map(|word| word.into_string().expect("text")).collect();
        Ok((added, without_effect))
    }

    fn added(arguments: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
        expanded(arguments, variables).expect("valid variables").0
    }

    #[test]
    fn the_defaults_are_those_of_the_original() {
        let rules = "--ratelimit-config=/srv/runtime_data/current/config";
        let [http, debug] = ["--rls-http=0.0.0.0:8080", "--rls-debug=0.0.0.0:6070"];
        assert_eq!(added(&[], &[]), ["--rls=0.0.0.0:8081", http, debug, rules]);
        let given = ["--rls", "127.0.0.1:1", "--rls-xds=a:1", "--probes=127.0.0.1:2", "--rls-debug=127.0.0.1:4"];
        assert_eq!(added(&given, &[("GRPC_PORT", "2"), ("PORT", "3"), ("RUNTIME_ROOT", "/x")]), given);
        assert_eq!(added(&[], &[("LEASEWAY_RLS", "127.0.0.1:1")]), [http, debug, rules]);
        let over_tls = [("GRPC_SERVER_USE_TLS", "true"), ("LEASEWAY_RLS", "127.0.0.1:1")];
        assert_eq!(added(&[], &over_tls), ["--probes=0.0.0.0:8080", debug, rules], "probes without TLS");
    }

    #[test]
    fn a_control_plane_and_answers_are_configured() {
        let variables = [
            ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
            ("CONFIG_GRPC_XDS_SERVER_URL", "plane:18001"),
            ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "TRUE"),
            ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "ca.pem"),
            ("CONFIG_GRPC_XDS_NODE_ID", "gw"),
            ("CONFIG_GRPC_XDS_NODE_METADATA", "zone=a"),
            ("GRPC_HOST", "10.0.0.1"),
            ("HOST", "10.0.0.2"),
            ("PORT", "81"),
            ("DEBUG_HOST", "127.0.0.1"),
            ("USE_PROMETHEUS", "1"),
            ("SHADOW_MODE", "true"),
            ("QUOTA_MODE", "false"),
            ("MERGE_DOMAIN_CONFIG", "t"),
            ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
            ("LIMIT_RESET_HEADER", "X-Reset"),
            ("LOG_LEVEL", "WARNING"),
            ("LOG_FORMAT", "json"),
            ("REDIS_URL", "redis:6379"),
            ("USE_STATSD", "false"),
        ];
        let (added, without_effect) = expanded(&[], &variables).expect("valid variables");
        let expected = [
            "--rls=10.0.0.1:8081",
            "--rls-http=10.0.0.2:81",
            "--rls-debug=127.0.0.1:6070",
            "--metrics=0.0.0.0:9090",
            "--plain-metrics",
            "--rls-ratelimit-metrics",
            "--rls-merge-domains",
            "--rls-xds=https://plane:18001",
            "--rls-xds-node=gw",
            "--rls-xds-metadata=zone=a",
            "--rls-xds-ca=ca.pem",
            "--rls-shadow-mode",
            "--rls-headers=RateLimit-Limit,RateLimit-Remaining,X-Reset",
            "--log=warn",
            "--log-format=json",
        ];
        assert_eq!((added, without_effect), (expected.map(str::to_owned).to_vec(), vec!["REDIS_URL".into()]));
    }

    #[test]
    fn statsd_is_used_only_if_it_is_named() {
        let statsd = |variables: &[(&str, &str)]| {
            added(&[], variables).into_iter().find(|flag| flag.starts_with("--rls-statsd="))
        };
        assert_eq!(statsd(&[]), None);
        assert_eq!(statsd(&[("STATSD_HOST", "s")]).as_deref(), Some("--rls-statsd=tcp://s:8125"));
        let udp = [("USE_STATSD", "true"), ("STATSD_PORT", "1"), ("STATSD_PROTOCOL", "udp")];
        assert_eq!(statsd(&udp).as_deref(), Some("--rls-statsd=udp://localhost:1"));
        assert_eq!(statsd(&[("STATSD_HOST", "s"), ("USE_STATSD", "false")]), None);
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        for (variables, says) in [
            (&[("GRPC_UDS", "/x")][..], "--ratelimit-env: GRPC_UDS: a gateway does not listen on Unix sockets"),
            (&[("SHADOW_MODE", "yes")], "SHADOW_MODE: `yes`: expected true or false"),
            (&[("CONFIG_TYPE", "REDIS")], "CONFIG_TYPE: `REDIS`: expected FILE or GRPC_XDS_SOTW"),
            (&[("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "a:b")], "--rls-xds-token-file"),
            (&[("USE_PROMETHEUS", "true"), ("PROMETHEUS_PATH", "/m")], "PROMETHEUS_PATH: `/m`"),
        ] {
            let refused = expanded(&[], variables).expect_err(says);
            assert!(refused.contains(says), "{refused}");
        }
    }

    #[test]
    fn under_the_name_of_the_original_it_is_a_gateway_that_declares() {
        let variables = |declare: &str| [("LEASEWAY_DECLARE".to_owned(), declare.to_owned())].into();
        let words = |declare: &str| {
            let program = vec!["/bin/ratelimit".into(), "--of-the-original".into()];
            let Expanded { arguments, without_effect } = expand(program, &variables(declare)).expect("valid variables");
            assert_eq!(without_effect, ["--of-the-original"]);
            arguments.into_iter().map(|word| word.into_string().expect("text")).collect::<Vec<_>>()
        };
        assert_eq!(words("")[..4], ["/bin/ratelimit", "gateway", FLAG, "--declare"]);
        assert!(!words("false").contains(&"--declare".to_owned()));
    }

    #[test]
    fn nothing_changes_unless_it_is_asked_for() {
        let variables = [("GRPC_PORT".to_owned(), "2".to_owned())].into();
        for words in [&["leaseway", "gateway", "--rls", "x"][..], &["leaseway", "serve", FLAG], &["leaseway"]] {
            let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
            let unchanged = Expanded { arguments: arguments.clone(), without_effect: Vec::new() };
            assert_eq!(expand(arguments, &variables), Ok(unchanged));
        }
    }
}
