//! `leaseway completions` and `leaseway man`, both generated from the definitions of the commands.

use std::{fs, path::PathBuf};

use clap::Args;
use clap_complete::Shell;

use crate::{Outcome, command, error::CliError, output::print_file};

#[derive(Args)]
#[command(after_help = "\
For bash:  leaseway completions bash > ~/.local/share/bash-completion/completions/leaseway
For zsh:   leaseway completions zsh > DIRECTORY/_leaseway, in a directory of $fpath
For fish:  leaseway completions fish > ~/.config/fish/completions/leaseway.fish")]
pub(crate) struct Completions {
    /// Shell to generate completions for
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> Outcome {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command(), "leaseway", &mut text);
        print_file(String::from_utf8_lossy(&text).trim_end())
    }
}

#[derive(Args)]
#[command(after_help = "Example: leaseway man ~/.local/share/man/man1 && man leaseway-status")]
pub(crate) struct Man {
    /// Output directory, created if absent. Existing pages are overwritten
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> Outcome {
        let written =
            fs::create_dir_all(&self.directory).and_then(|()| clap_mangen::generate_to(command(), &self.directory));
        written.map_err(|error| CliError::Data { path: self.directory, error })
    }
}
