//! `-o text|json`: the flag of every command that prints a result.

use std::fmt::Display;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::{say, say_json};
use crate::Outcome;

/// How a result is printed.
#[derive(Args)]
pub(crate) struct Output {
    /// How the result is printed
    #[arg(short, long, value_enum, value_name = "FORM", default_value = "text")]
    output: Form,
    /// The same as -o json
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people
    Text,
    /// For programs, on one line; docs/reference/json.md says what each field means
    Json,
}

impl Output {
    pub(crate) fn is_json(&self) -> bool {
        self.json || self.output == Form::Json
    }

    /// Prints a result in the form that was asked for.
    pub(crate) fn print<T: Display>(&self, text: impl FnOnce() -> T, json: impl FnOnce() -> Value) -> Outcome {
        if self.is_json() { say_json(json()) } else { say(text()) }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct PrintsSomething {
        #[command(flatten)]
        output: Output,
    }

    #[test]
    fn the_short_form_and_the_long_one_are_the_same() {
        let is_json = |arguments: &[&str]| {
            let command = PrintsSomething::try_parse_from([&["command"], arguments].concat());
            command.map(|command| command.output.is_json()).map_err(|error| error.kind())
        };
        assert_eq!([is_json(&[]), is_json(&["-o", "text"])], [Ok(false); 2]);
        assert_eq!([is_json(&["--json"]), is_json(&["-ojson"]), is_json(&["--output", "json"])], [Ok(true); 3]);
        assert_eq!(is_json(&["--json", "-o", "text"]), Err(clap::error::ErrorKind::ArgumentConflict));
        assert_eq!(is_json(&["-o", "yaml"]), Err(clap::error::ErrorKind::InvalidValue));
    }
}
