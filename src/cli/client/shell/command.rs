//! The commands of the shell, and their parser.

#[cfg(test)]
mod tests;

use leaseway_core::{
    policy::parameters::nearest,
    types::{Amount, AmountError},
};

use crate::output::shell_quoted;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ShellCommand {
    Get { client: String, resource: String, wants: Amount },
    Release { client: String, resource: String },
    Show,
    Master,
    Watch { resource: String },
    Help,
    Quit,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SyntaxError {
    #[error("a quotation mark is not closed, or a backslash ends the line")]
    Unclosed,
    #[error("unknown command `{word}`{suggestion}; `help` lists all commands")]
    Unknown { word: String, suggestion: String },
    #[error("{what} is missing: write `{usage}`")]
    Missing { what: &'static str, usage: String },
    #[error("unexpected `{word}`: write `{usage}`")]
    TooMany { word: String, usage: String },
    #[error("the name of {what} must not be empty")]
    NoName { what: &'static str },
    #[error("`{word}` is not a capacity: write a number above 0, like 40 or 2.5")]
    NotANumber { word: String },
    #[error("a capacity of {word} {why}: write a number above 0, like 40 or 2.5")]
    BadCapacity { word: String, why: AmountError },
    #[error("a capacity of 0 cannot be requested; to give up a lease write `release {client} {resource}`")]
    Zero { client: String, resource: String },
}

/// The syntax and summary of a command.
pub(super) struct Usage {
    pub(super) name: &'static str,
    pub(super) arguments: &'static [Argument],
    summary: &'static str,
}

/// A positional argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Argument {
    Client,
    Resource,
    Capacity,
}

impl Argument {
    fn placeholder(self) -> &'static str {
        match self {
            Argument::Client => "CLIENT",
            Argument::Resource => "RESOURCE",
            Argument::Capacity => "CAPACITY",
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Argument::Client => "the client",
            Argument::Resource => "the resource",
            Argument::Capacity => "the capacity",
        }
    }
}

const GET: Usage = Usage {
    name: "get",
    arguments: &[Argument::Client, Argument::Resource, Argument::Capacity],
    summary: "request capacity and keep the lease until it is released; repeat the command to change the amount",
};
const RELEASE: Usage = Usage {
    name: "release",
    arguments: &[Argument::Client, Argument::Resource],
    summary: "release the lease of a `get`",
};
const SHOW: Usage = Usage { name: "show", arguments: &[], summary: "list all requests of this shell and their leases" };
const MASTER: Usage = Usage { name: "master", arguments: &[], summary: "show the server of each client" };
const WATCH: Usage = Usage {
    name: "watch",
    arguments: &[Argument::Resource],
    summary: "print a resource each second until Enter or Ctrl-C; only once in scripts",
};
const HELP: Usage = Usage { name: "help", arguments: &[], summary: "print this help" };
const QUIT: Usage =
    Usage { name: "quit", arguments: &[], summary: "release everything and exit; also `q`, `bye` and Ctrl-D" };

/// All commands, in the order of `help`.
pub(super) const COMMANDS: [Usage; 7] = [GET, RELEASE, SHOW, MASTER, WATCH, HELP, QUIT];

impl Usage {
    fn line(&self) -> String {
        let words = self.arguments.iter().map(|argument| argument.placeholder());
        std::iter::once(self.name).chain(words).collect::<Vec<_>>().join(" ")
    }

    /// Converts words to the arguments of the command. Names must not be empty.
    fn take<const N: usize>(&self, words: Vec<String>) -> Result<[String; N], SyntaxError> {
        if let Some(missing) = self.arguments.get(words.len()) {
            return Err(SyntaxError::Missing { what: missing.in_words(), usage: self.line() });
        }
        let names = self.arguments.iter().zip(&words).filter(|(argument, _)| **argument != Argument::Capacity);
        if let Some((unnamed, _)) = names.into_iter().find(|(_, word)| word.is_empty()) {
            return Err(SyntaxError::NoName { what: unnamed.in_words() });
        }
        <[String; N]>::try_from(words)
            .map_err(|mut words| SyntaxError::TooMany { word: words.swap_remove(N), usage: self.line() })
    }
}

impl ShellCommand {
    /// Parses a line. Words are split and quoted as in a shell, and `#` begins a comment. `None` if nothing is left.
    pub(crate) fn parse(line: &str) -> Result<Option<ShellCommand>, SyntaxError> {
        let mut words = shlex::split(line).ok_or(SyntaxError::Unclosed)?;
        if words.is_empty() {
            return Ok(None);
        }
        let name = words.remove(0);
        let command = match name.as_str() {
            "get" => {
                let [client, resource, wants] = GET.take(words)?;
                let wants = capacity(&wants, &client, &resource)?;
                ShellCommand::Get { client, resource, wants }
            }
            "release" => {
                let [client, resource] = RELEASE.take(words)?;
                ShellCommand::Release { client, resource }
            }
            "watch" => {
                let [resource] = WATCH.take(words)?;
                ShellCommand::Watch { resource }
            }
            "show" => SHOW.take::<0>(words).map(|_| ShellCommand::Show)?,
            "master" => MASTER.take::<0>(words).map(|_| ShellCommand::Master)?,
            "help" => HELP.take::<0>(words).map(|_| ShellCommand::Help)?,
            "quit" | "q" | "bye" => QUIT.take::<0>(words).map(|_| ShellCommand::Quit)?,
            _ => return Err(unknown(name)),
        };
        Ok(Some(command))
    }
}

fn capacity(word: &str, client: &str, resource: &str) -> Result<Amount, SyntaxError> {
    let number: f64 = word.parse().map_err(|_| SyntaxError::NotANumber { word: word.to_owned() })?;
    let wants = Amount::new(number).map_err(|why| SyntaxError::BadCapacity { word: word.to_owned(), why })?;
    if wants == Amount::ZERO {
        return Err(SyntaxError::Zero { client: shell_quoted(client), resource: shell_quoted(resource) });
    }
    Ok(wants)
}

fn unknown(word: String) -> SyntaxError {
    let suggestion = nearest(&word, COMMANDS.iter().map(|usage| usage.name))
        .map_or_else(String::new, |nearest| format!(" (did you mean `{nearest}`?)"));
    SyntaxError::Unknown { word, suggestion }
}

pub(super) fn help() -> String {
    let width = COMMANDS.iter().map(|usage| usage.line().len()).max().unwrap_or_default();
    let lines = COMMANDS.iter().map(|usage| format!("  {:<width$}  {}", usage.line(), usage.summary));
    let commands = lines.collect::<Vec<_>>().join("\n");
    format!("{commands}\nQuote names that contain spaces. A # begins a comment.")
}
