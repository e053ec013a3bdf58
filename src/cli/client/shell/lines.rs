//! Where lines come from: a terminal, where they can be edited and are remembered, or anything else, where they are
//! read.
//!
//! Reading blocks, and leases have to be refreshed meanwhile: so a thread of its own reads, one line for each that is
//! asked for. It ends with the process.

use std::{io, path::PathBuf, thread};

use rustyline::{Config, Editor, ExternalPrinter, error::ReadlineError, history::FileHistory};
use tokio::sync::{mpsc, oneshot};

use super::{complete::Names, history};
use crate::error::CliError;

/// What came instead of, or as, a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    Text(String),
    Interrupted,
    /// Ctrl-D, or the end of the file.
    End,
    /// There can be no more lines.
    Failed(String),
}

/// What the line is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Command,
    /// Enter ends what goes on. There is no prompt, and the line is not remembered.
    Stop,
}

pub(super) struct Request {
    pub(super) purpose: Purpose,
    pub(super) reply: oneshot::Sender<Line>,
}

/// Lines, one at a time, from the thread that answers requests for them.
pub(super) struct Lines {
    requests: mpsc::UnboundedSender<Request>,
}

impl Lines {
    pub(super) fn answered_by() -> (Lines, mpsc::UnboundedReceiver<Request>) {
        let (requests, answered) = mpsc::unbounded_channel();
        (Lines { requests }, answered)
    }

    /// The next line. It is being read from now on, also if the future is dropped.
    pub(super) fn next(&self, purpose: Purpose) -> impl Future<Output = Line> + use<> {
        let (reply, line) = oneshot::channel();
        // If the thread has ended, the reply is dropped with the request.
        let _ = self.requests.send(Request { purpose, reply });
        async { line.await.unwrap_or(Line::End) }
    }
}

/// Lines that a user types, and a printer above the line that is being typed.
pub(super) fn typed() -> Result<(Lines, Option<Box<dyn ExternalPrinter + Send>>), CliError> {
    let mut terminal = Terminal::new().map_err(|error| CliError::Runtime(io::Error::other(error)))?;
    // A terminal that cannot do this is printed to as any other output.
    let printer = terminal.editor.create_external_printer().ok();
    let (lines, requests) = Lines::answered_by();
    answer(requests, move |purpose| terminal.read(purpose))?;
    Ok((lines, printer.map(|printer| Box::new(printer) as Box<_>)))
}

/// Lines from standard input as they are.
pub(super) fn piped() -> Result<Lines, CliError> {
    let (lines, requests) = Lines::answered_by();
    answer(requests, |_| {
        let mut text = String::new();
        match io::stdin().read_line(&mut text) {
            Ok(0) => Line::End,
            Ok(_) => Line::Text(text),
            Err(error) => Line::Failed(format!("cannot read what to do: {error}")),
        }
    })?;
    Ok(lines)
}

fn answer(
    mut requests: mpsc::UnboundedReceiver<Request>,
    mut read: impl FnMut(Purpose) -> Line + Send + 'static,
) -> Result<(), CliError> {
    let serve = move || {
        while let Some(request) = requests.blocking_recv() {
            // The request may have been dropped meanwhile.
            let _ = request.reply.send(read(request.purpose));
        }
    };
    thread::Builder::new().name("lines".to_owned()).spawn(serve).map(drop).map_err(CliError::Runtime)
}

struct Terminal {
    editor: Editor<Names, FileHistory>,
    /// `None` if lines cannot be kept.
    history: Option<PathBuf>,
}

impl Terminal {
    const REMEMBERED: usize = 1000;

    fn new() -> rustyline::Result<Terminal> {
        let config = Config::builder().max_history_size(Terminal::REMEMBERED)?.build();
        let mut editor = Editor::with_config(config)?;
        let mut names = Names::default();
        let history = history::file().filter(|file| history::make_room(file).is_ok());
        if let Some(file) = &history {
            // The first time there is none, and a shell without earlier lines is better than no shell.
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
        // Not being able to remember a line is no reason not to obey it.
        let added = self.editor.add_history_entry(line).unwrap_or(false);
        if let (true, Some(file)) = (added, &self.history) {
            let _ = self.editor.append_history(file);
        }
    }
}
