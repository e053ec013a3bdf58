//! The source of commands: a user at a terminal, or a file.

use std::{
    io::{self, IsTerminal as _},
    sync::Arc,
};

use leaseway_core::{escaped, escaped_lines};
use rustyline::ExternalPrinter;
use tokio::{signal, sync::Notify};

use super::{
    ShellError,
    lines::{self, Line, Lines, Purpose},
};
use crate::{error::CliError, output};

/// Where results and complaints go.
pub(super) trait Screen {
    fn say(&mut self, text: &str) -> Result<(), CliError>;
    /// A result, while a line is being typed.
    fn say_above(&mut self, text: &str) -> Result<(), CliError>;
    fn complain(&mut self, text: &str);
}

pub(super) struct User {
    pub(super) lines: Lines,
    pub(super) screen: Box<dyn Screen>,
    /// A user is at the terminal: prompts are shown, and `watch` can be stopped.
    pub(super) present: bool,
    /// Notified of Ctrl-C while no line is being edited.
    pub(super) interrupt: Arc<Notify>,
    /// Lines so far.
    line: usize,
}

impl User {
    pub(super) fn new(lines: Lines, screen: Box<dyn Screen>, present: bool, interrupt: Arc<Notify>) -> User {
        User { lines, screen, present, interrupt, line: 0 }
    }

    /// Reads commands from standard input.
    pub(super) fn at_standard_input() -> Result<User, CliError> {
        let present = io::stdin().is_terminal();
        let (lines, printer) = if present { lines::typed()? } else { (lines::piped()?, None) };
        Ok(User::new(lines, Box::new(Standard { printer }), present, interrupts()))
    }

    pub(super) async fn next_command(&mut self) -> Line {
        let line = self.lines.next(Purpose::Command);
        self.line += 1;
        if self.present {
            // Ctrl-C is a key here, and comes as a line.
            return line.await;
        }
        tokio::select! {
            line = line => line,
            () = self.interrupt.notified() => Line::Failed("interrupted".to_owned()),
        }
    }

    /// Prints an error, with the line number if input is not a terminal.
    pub(super) fn complain(&mut self, why: &ShellError) {
        let why = match why {
            ShellError::Session(error) => output::in_words(error),
            other => escaped(&other.to_string()).into_owned(),
        };
        let text = if self.present { why } else { format!("leaseway: line {}: {why}", self.line) };
        self.screen.complain(&text);
    }
}

fn interrupts() -> Arc<Notify> {
    let interrupt = Arc::new(Notify::new());
    let notify = Arc::clone(&interrupt);
    tokio::spawn(async move {
        // Only present waiters are notified: an interrupt while nothing can be interrupted is forgotten.
        while signal::ctrl_c().await.is_ok() {
            notify.notify_waiters();
        }
    });
    interrupt
}

struct Standard {
    printer: Option<Box<dyn ExternalPrinter + Send>>,
}

impl Screen for Standard {
    fn say(&mut self, text: &str) -> Result<(), CliError> {
        output::say(text)
    }

    fn say_above(&mut self, text: &str) -> Result<(), CliError> {
        match &mut self.printer {
            Some(printer) => printer
                .print(format!("{}\n", escaped_lines(text)))
                .map_err(|error| CliError::Output(io::Error::other(error))),
            None => output::say(text),
        }
    }

    fn complain(&mut self, text: &str) {
        // Nothing can be done about a further failure.
        output::note(text);
    }
}
