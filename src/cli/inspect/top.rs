//! `leaseway top`: a live view of a cluster in a terminal.

mod screen;
mod source;
mod view;

use std::io;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::source::{Source, Update};
use self::view::{Key, Next, View};
use crate::{Outcome, connect::Target, error::CliError};

#[derive(Args)]
#[command(after_help = "\
Keys: q or Ctrl-C quits; arrows, Page Up and Page Down select; Enter shows the clients of a resource, Esc goes back;
s sorts by pressure, wants or name. It needs a terminal; programs use `leaseway status -o json`.")]
pub(crate) struct Top {
    /// Refresh interval in seconds, 1 to 3600
    #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// File with the operators' token. Replaces --token-file at admin addresses
    #[arg(long, env = "LEASEWAY_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

/// The interval at which keys and answers are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Top {
    pub(crate) fn run(self) -> Outcome {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Err(CliError::NoTerminal);
        }
        let source = Source::start(self.target, self.admin_token_file, Duration::from_secs(self.every))?;
        at_terminal(|terminal| show(terminal, &source))
    }
}

/// Restores the terminal afterwards, and before a panic is reported.
fn at_terminal(work: impl FnOnce(&mut DefaultTerminal) -> Outcome) -> Outcome {
    let mut terminal = ratatui::try_init().map_err(CliError::Output)?;
    let outcome = work(&mut terminal);
    ratatui::restore();
    outcome
}

fn show(terminal: &mut DefaultTerminal, source: &Source) -> Outcome {
    let mut view = View::default();
    loop {
        terminal.draw(|frame| screen::draw(frame, &mut view)).map_err(CliError::Output)?;
        if event::poll(POLL_INTERVAL).map_err(CliError::Output)?
            && let Event::Key(key) = event::read().map_err(CliError::Output)?
            && let Some(key) = read(key)
        {
            match view.press(key) {
                Next::Nothing => {}
                Next::Look => source.look_at(view.resource()),
                Next::End => return Ok(()),
            }
        }
        match source.next_update() {
            Ok(Update::Stop) => return Ok(()),
            Err(mpsc::TryRecvError::Disconnected) => {
                return Err(CliError::Runtime(io::Error::other(
                    "`leaseway top` can no longer ask the cluster, because of an internal error: start it again",
                )));
            }
            Ok(Update::Observation(seen)) => view.learn(*seen),
            Err(mpsc::TryRecvError::Empty) => {}
        }
    }
}

fn read(key: KeyEvent) -> Option<Key> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::End,
        KeyCode::Char('q') => Key::End,
        KeyCode::Char('s') => Key::Sort,
        KeyCode::Char('j') | KeyCode::Down => Key::Down(1),
        KeyCode::Char('k') | KeyCode::Up => Key::Up(1),
        KeyCode::PageDown => Key::Down(view::PAGE),
        KeyCode::PageUp => Key::Up(view::PAGE),
        KeyCode::Home => Key::Up(usize::MAX),
        KeyCode::End => Key::Down(usize::MAX),
        KeyCode::Enter => Key::Open,
        KeyCode::Esc | KeyCode::Backspace => Key::Back,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::{Command, Stdio};

    use super::*;

    /// Set where this test runs itself in a terminal.
    const AT_TERMINAL: &str = "TEST_AT_TERMINAL";

    #[test]
    fn a_panic_is_reported_after_the_terminal_is_restored() {
        if env::var_os(AT_TERMINAL).is_some() {
            let _ = at_terminal(|_| panic!("planted panic"));
        }
        let own = env::current_exe().expect("the test runs").display().to_string();
        let test = "inspect::top::tests::a_panic_is_reported_after_the_terminal_is_restored";
        let command = format!("{AT_TERMINAL}=1 '{own}' --exact {test} --nocapture; stty -a");
        let mut script = Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null());
        let said = script.output().expect("util-linux is there").stdout;
        let said = String::from_utf8_lossy(&said);
        let (drawn, told) = said.split_once("planted panic").expect("the panic is reported");
        assert!(drawn.contains("\u{1b}[?1049h") && drawn.contains("\u{1b}[?1049l"), "{said:?}");
        assert!(told.contains(" icanon") && told.contains(" echo "), "{said:?}");
    }
}
