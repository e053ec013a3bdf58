//! `leaseway token`: creates tokens for callers.

use std::{fs::OpenOptions, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::PathBuf};

use clap::{Args, Subcommand};
use leaseway_server::NewToken;
use serde_json::json;

use crate::Outcome;
use crate::error::CliError;
use crate::output::{Output, note, print, print_json};

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token, and its line for `serve --tokens`
    New(New),
}

impl TokenCommand {
    pub(crate) fn run(self) -> Outcome {
        let TokenCommand::New(new) = self;
        new.run()
    }
}

#[derive(Args)]
pub(crate) struct New {
    /// Identity of the token's holder, as in the access policy
    identity: String,
    /// Write the token to a new file that only this user can read, and print only the line for --tokens
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl New {
    fn run(self) -> Outcome {
        let new = NewToken::make(&self.identity).map_err(|error| CliError::Flags(error.to_string()))?;
        let Some(path) = self.out else {
            if self.output.is_json() {
                return print_json(
                    json!({ "identity": self.identity, "token": new.token(), "file": null, "line": new.to_string() }),
                );
            }
            note("the token (stored nowhere else; give it only to its holder):");
            print(new.token())?;
            note("the line for the --tokens file of the server:");
            return print(new);
        };
        let failed = |error| CliError::Data { path: path.clone(), error };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        writeln!(file, "{}", new.token()).map_err(failed)?;
        let file = path.display().to_string();
        let json = || json!({ "identity": self.identity, "token": null, "file": file, "line": new.to_string() });
        self.output.print(|| &new, json)
    }
}
