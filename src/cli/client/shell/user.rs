//! The source of commands and the destination of results: a terminal, or files and pipes.

use std::io;
use std::io::IsTerminal as _;
use std::sync::Arc;

use leaseway_core::types::{escaped, escaped_lines};
use rustyline::ExternalPrinter;
use tokio::{signal, sync::Notify};

use super::lines::{Line, Lines, Purpose};
use super::{ShellError, lines};
use crate::{error::CliError, output};

pub(super) trait Screen {
    fn print(&mut self, text: &str) -> Result<(), CliError>;
    /// Prints a result above the line being edited.
    fn print_above(&mut self, text: &str) -> Result<(), CliError>;
    fn print_error(&mut self, text: &str);
}

pub(super) struct User {
    pub(super) lines: Lines,
    pub(super) screen: Box<dyn Screen>,
    /// A user is at the terminal: prompts are shown, and `watch` can be stopped.
    pub(super) present: bool,
    /// Notified of Ctrl-C while no line is being edited.
    pub(super) interrupt: Arc<Notify>,
    /// The number of lines read.
    line: usize,
}

impl User {
    pub(super) fn new(lines: Lines, screen: Box<dyn Screen>, present: bool, interrupt: Arc<Notify>) -> User {
        User { lines, screen, present, interrupt, line: 0 }
    }

    /// Reads commands from standard input.
    pub(super) fn at_standard_input() -> Result<User, CliError> {
        let present = io::stdin().is_terminal();
        let (lines, printer) = if present { lines::from_terminal()? } else { (lines::from_stdin()?, None) };
        Ok(User::new(lines, Box::new(Standard { printer }), present, interrupts()))
    }

    pub(super) async fn next_command(&mut self) -> Line {
        let line = self.lines.next(Purpose::Command);
        self.line += 1;
        if self.present {
            // The line editor reports Ctrl-C as a line.
            return line.await;
        }
        tokio::select! {
            line = line => line,
            () = self.interrupt.notified() => Line::Failed("interrupted".to_owned()),
        }
    }

    /// Prints an error, with the line number if input is not a terminal.
    pub(super) fn print_error(&mut self, why: &ShellError) {
        let why = match why {
            ShellError::Session(error) => output::in_words(error),
            other => escaped(&other.to_string()).into_owned(),
        };
        let text = if self.present { why } else { format!("leaseway: line {}: {why}", self.line) };
        self.screen.print_error(&text);
    }
}

fn interrupts() -> Arc<Notify> {
    let interrupt = Arc::new(Notify::new());
    let notify = Arc::clone(&interrupt);
    tokio::spawn(async move {
        // Only current waiters are notified: Ctrl-C is ignored while nothing can be interrupted.
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
    fn print(&mut self, text: &str) -> Result<(), CliError> {
        output::print(text)
    }

    fn print_above(&mut self, text: &str) -> Result<(), CliError> {
        match &mut self.printer {
            Some(printer) => printer
                .print(format!("{}\n", escaped_lines(text)))
                .map_err(|error| CliError::Output(io::Error::other(error))),
            None => output::print(text),
        }
    }

    fn print_error(&mut self, text: &str) {
        output::note(text);
    }
}
