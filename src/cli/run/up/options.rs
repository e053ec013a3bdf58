//! Flags of `leaseway serve` in the file of `leaseway up`. Flags and values are checked with the command line's own
//! definitions, so that every flag can be given without being listed here.

use std::any::TypeId;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command, error::ErrorKind};
use leaseway_server::config::yaml::unknown;

/// Flags that `up` sets for each peer.
const OWN: [&str; 11] =
    ["id", "listen", "http", "admin", "peer-listen", "peers", "data", "bootstrap", "take-over", "parent", "node"];

/// A flag with its value, if it takes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) flag: String,
    pub(super) value: Option<String>,
}

pub(super) struct Options {
    serve: Command,
    base: PathBuf,
}

impl Options {
    /// Relative paths in values start from `base`.
    pub(super) fn new(base: &Path) -> Options {
        let cli = crate::command();
        let serve = cli.find_subcommand("serve").expect("the command exists").clone();
        // Variables of this process do not apply to the file.
        Options { serve: serve.mut_args(|flag| flag.env(None)), base: base.to_owned() }
    }

    /// The flag for an entry; `None` for a switch that is off.
    pub(super) fn read(&self, name: &str, value: &str) -> Result<Option<Setting>, String> {
        let own = |name: &&str| OWN.contains(name) || *name == "config" || *name == "help";
        if own(&name) {
            return Err(format!(
                "`{name}` cannot be set in `options`: `leaseway up` sets it from the other keys of the node"
            ));
        }
        let flags: Vec<&str> = self.serve.get_arguments().filter_map(Arg::get_long).filter(|flag| !own(flag)).collect();
        let found = self.serve.get_arguments().find(|flag| flag.get_long() == Some(name));
        let Some(flag) = found.filter(|_| flags.contains(&name)) else {
            return Err(unknown("option", name, &flags));
        };
        let flag_name = format!("--{name}");
        if matches!(flag.get_action(), ArgAction::SetTrue) {
            return match value {
                "true" => Ok(Some(Setting { flag: flag_name, value: None })),
                "false" => Ok(None),
                _ => Err(format!("`{name}` is `{value}`, expected true or false")),
            };
        }
        let value = match flag.get_value_parser().type_id() == TypeId::of::<PathBuf>() {
            true => self.base.join(value).display().to_string(),
            false => value.to_owned(),
        };
        self.check(&format!("{flag_name}={value}"))?;
        Ok(Some(Setting { flag: flag_name, value: Some(value) }))
    }

    /// Checks a flag with its value as the command line does.
    fn check(&self, argument: &str) -> Result<(), String> {
        match self.serve.clone().no_binary_name(true).try_get_matches_from([argument]) {
            Ok(_) => Ok(()),
            // The other flags are set for each peer later.
            Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => Ok(()),
            Err(error) => {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default();
                Err(first.strip_prefix("error: ").unwrap_or(first).to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<Option<Setting>, String> {
        Options::new(Path::new("/base")).read(name, value)
    }

    #[test]
    fn flags_and_values_are_checked_as_on_the_command_line() {
        let threads = Setting { flag: "--threads".into(), value: Some("2".into()) };
        assert_eq!(read("threads", "2"), Ok(Some(threads)));
        let error = read("threads", "two").expect_err("no number");
        assert!(error.contains("'two'") && error.contains("--threads"), "{error}");
        assert!(!error.contains('\n'), "{error}");
        let error = read("thread", "2").expect_err("misspelt");
        assert!(error.starts_with("unknown option `thread` (did you mean `threads`?)"), "{error}");
        assert!(!error.contains("listen"), "what cannot be given is not offered: {error}");
    }

    #[test]
    fn flags_that_up_sets_for_each_peer_are_refused() {
        for name in OWN.iter().chain(&["config", "help"]) {
            assert!(read(name, "x").expect_err(name).contains("cannot be set in `options`"), "{name}");
        }
    }
}
