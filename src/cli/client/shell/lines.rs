//! Input lines: from a terminal, with editing and history, or from a pipe.
//!
//! Reading blocks while leases have to be refreshed, so a separate thread reads one line per request. It ends with the
//! process.

use std::{env, ffi::OsString, fs, io, path::PathBuf, thread};

use rustyline::{Config, Editor, ExternalPrinter, error::ReadlineError, history::FileHistory};
use tokio::sync::{mpsc, oneshot};

use super::complete::Names;
use crate::error::CliError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    Text(String),
    Interrupted,
    /// Ctrl-D, or the end of the file.
    End,
    /// Input failed; there are no more lines.
    Failed(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Command,
    /// Enter stops `watch`. There is no prompt, and the line is not added to the history.
    Stop,
}

pub(super) struct Request {
    pub(super) purpose: Purpose,
    pub(super) reply: oneshot::Sender<Line>,
}

/// Requests lines from the reading thread.
pub(super) struct Lines {
    requests: mpsc::UnboundedSender<Request>,
}

impl Lines {
    pub(super) fn channel() -> (Lines, mpsc::UnboundedReceiver<Request>) {
        let (requests, answered) = mpsc::unbounded_channel();
        (Lines { requests }, answered)
    }

    /// The next line. Reading starts immediately, and continues if the future is dropped.
    pub(super) fn next(&self, purpose: Purpose) -> impl Future<Output = Line> + use<> {
        let (reply, line) = oneshot::channel();
        // If the thread has ended, the reply sender is dropped with the request.
        let _ = self.requests.send(Request { purpose, reply });
        async { line.await.unwrap_or(Line::End) }
    }
}

/// Lines from the terminal, and a printer that writes above the line being edited.
pub(super) fn from_terminal() -> Result<(Lines, Option<Box<dyn ExternalPrinter + Send>>), CliError> {
    let mut terminal = Terminal::new().map_err(|error| CliError::Runtime(io::Error::other(error)))?;
    // Without a printer results go to standard output.
    let printer = terminal.editor.create_external_printer().ok();
    let (lines, requests) = Lines::channel();
    spawn_reader(requests, move |purpose| terminal.read(purpose))?;
    Ok((lines, printer.map(|printer| Box::new(printer) as Box<_>)))
}

/// Lines from standard input.
pub(super) fn from_stdin() -> Result<Lines, CliError> {
    let (lines, requests) = Lines::channel();
    spawn_reader(requests, |_| {
        let mut text = String::new();
        match io::stdin().read_line(&mut text) {
            Ok(0) => Line::End,
            Ok(_) => Line::Text(text),
            Err(error) => Line::Failed(format!("cannot read a command: {error}")),
        }
    })?;
    Ok(lines)
}

fn spawn_reader(
    mut requests: mpsc::UnboundedReceiver<Request>,
    mut read: impl FnMut(Purpose) -> Line + Send + 'static,
) -> Result<(), CliError> {
    let serve = move || {
        while let Some(request) = requests.blocking_recv() {
            // The request may have been dropped.
            let _ = request.reply.send(read(request.purpose));
        }
    };
    thread::Builder::new().name("lines".to_owned()).spawn(serve).map(drop).map_err(CliError::Runtime)
}

struct Terminal {
    editor: Editor<Names, FileHistory>,
    /// `None` if no history is kept.
    history: Option<PathBuf>,
}

impl Terminal {
    const MAX_HISTORY: usize = 1000;

    fn new() -> rustyline::Result<Terminal> {
        let config = Config::builder().max_history_size(Terminal::MAX_HISTORY)?.build();
        let mut editor = Editor::with_config(config)?;
        let mut names = Names::default();
        let history = history_file(env::var_os("XDG_STATE_HOME"), env::var_os("HOME"))
            .filter(|file| file.parent().is_some_and(|directory| fs::create_dir_all(directory).is_ok()));
        if let Some(file) = &history {
            // A missing or unreadable history is not fatal.
            let _ = editor.load_history(file);
        }
        editor.history().into_iter().for_each(|line| names.learn(line));
        editor.set_helper(Some(names));
        Ok(Terminal { editor, history })
    }

    fn read(&mut self, purpose: Purpose) -> Line {
        let prompt = match purpose {
            Purpose::Command => "> ",
            Purpose::Stop => "",
        };
        match self.editor.readline(prompt) {
            Ok(text) => {
                if purpose == Purpose::Command {
                    self.remember(&text);
                }
                Line::Text(text)
            }
            Err(ReadlineError::Interrupted) => Line::Interrupted,
            Err(ReadlineError::Eof) => Line::End,
            Err(error) => Line::Failed(format!("cannot read from the terminal: {error}")),
        }
    }

    fn remember(&mut self, line: &str) {
        if let Some(names) = self.editor.helper_mut() {
            names.learn(line);
        }
        // Failing to record a line is not fatal.
        let added = self.editor.add_history_entry(line).unwrap_or(false);
        if let (true, Some(file)) = (added, &self.history) {
            let _ = self.editor.append_history(file);
        }
    }
}

/// The history file of this user, if a state directory is known.
fn history_file(state: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    // The XDG specification says to ignore relative paths.
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let state = state.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".local/state")))?;
    Some(state.join("leaseway/shell_history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_kept_in_the_state_directory_and_relative_paths_are_ignored() {
        let home = Some("/home/u/.local/state/leaseway/shell_history");
        for (state, of_home, expected) in [
            (Some("/state"), Some("/home/u"), Some("/state/leaseway/shell_history")),
            (None, Some("/home/u"), home),
            (Some("state"), Some("/home/u"), home),
            (Some(""), Some("/home/u"), home),
            (None, Some(""), None),
            (None, None, None),
        ] {
            let file = history_file(state.map(Into::into), of_home.map(Into::into));
            assert_eq!(file, expected.map(PathBuf::from), "{state:?} {of_home:?}");
        }
    }
}
