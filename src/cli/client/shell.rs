//! `leaseway shell`: plays several clients by hand, as Doorman's shell does.
//!
//! What is typed is understood in [`command`], and read in [`lines`]; here it is carried out. How leases are had and
//! kept is for the [`Session`] to know.

mod clients;
mod command;
mod complete;
mod history;
mod lines;
#[cfg(test)]
mod tests;
mod user;
mod watch;

use std::time::Duration;

use clap::Args;
use leaseway_core::{Amount, escaped};
use leaseway_proto::status::Resource;

use crate::{
    Outcome,
    connect::{Target, block_on},
    error::CliError,
    output::format::number,
};
use clients::ShellClients;
use command::{ShellCommand, SyntaxError, help};
use lines::Line;
use user::User;
use watch::Observer;

/// Plays several clients by hand: `get` asks for capacity in the name of one and keeps the lease refreshed, until
/// `release` or the end of the shell. `help` lists the commands. Reads commands from a pipe as well.
#[derive(Args)]
pub(crate) struct Shell {
    #[command(flatten)]
    target: Target,
}

impl Shell {
    pub(crate) fn run(self) -> Outcome {
        let ended = block_on(run(ShellClients::new(self.target)?))?;
        match ended {
            Ended::Well => Ok(()),
            Ended::WithFailures => Err(CliError::ShellFailed),
        }
    }
}

/// What the commands of a shell are carried out by. Each call may be given up before it is done.
trait Session {
    /// Asks for capacity in the name of a client, and keeps the lease refreshed in the background until it is released.
    /// Asked again, what the client wants is what is asked for last.
    async fn get(&mut self, client: &str, resource: &str, wants: Amount) -> Result<(), CliError>;

    /// Gives back what `get` asked for. Whether there was such a thing.
    async fn release(&mut self, client: &str, resource: &str) -> Result<bool, CliError>;

    /// Everything that was asked for and not released, in any order.
    fn held(&self) -> Vec<Held>;

    /// Each client, and the server that it talks to, in any order.
    fn masters(&self) -> Vec<(String, String)>;

    /// How a resource is doing: what an [`Observer`] says.
    async fn resource(&mut self, resource: &str) -> Result<Resource, CliError>;

    /// Gives everything back.
    async fn close(self) -> Result<(), CliError>;
}

/// What a client has of a resource now.
#[derive(Debug, Clone, PartialEq)]
struct Held {
    resource: String,
    client: String,
    capacity: f64,
    /// For how long; nothing if there is no lease, or none any more.
    left: Option<Duration>,
}

/// How a shell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// All commands succeeded, or a user at the terminal has seen the failures.
    Well,
    /// A command of a file or pipe failed.
    WithFailures,
}

/// Why a command could not be carried out.
#[derive(Debug, thiserror::Error)]
enum ShellError {
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    #[error(transparent)]
    Session(#[from] CliError),
    #[error("{client} has asked for no `{resource}` in this shell; `show` lists what has been asked for")]
    NothingToRelease { client: String, resource: String },
    #[error("interrupted; it may have been done all the same")]
    Interrupted,
    #[error("interrupted; what was not given back is free again when its lease ends")]
    ClosedEarly,
    #[error("{0}")]
    Lines(String),
}

/// Carries out what comes from standard input, until it ends or says so.
async fn run(session: impl Session) -> Result<Ended, CliError> {
    Ok(carry_out(session, User::at_standard_input()?).await)
}

async fn carry_out(mut session: impl Session, mut user: User) -> Ended {
    let mut failed = false;
    loop {
        let outcome = match user.next_command().await {
            Line::Text(text) => match ShellCommand::parse(&text) {
                Ok(Some(ShellCommand::Quit)) => break,
                Ok(Some(command)) => interruptible(&mut session, &mut user, command).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error.into()),
            },
            Line::Interrupted => Ok(()),
            Line::End => break,
            Line::Failed(why) => {
                failed = true;
                user.complain(&ShellError::Lines(why));
                break;
            }
        };
        if let Err(error) = outcome {
            failed = true;
            user.complain(&error);
        }
    }
    let closed = close(session, &user).await;
    if let Err(error) = &closed {
        user.complain(error);
    }
    if (failed || closed.is_err()) && !user.present { Ended::WithFailures } else { Ended::Well }
}

async fn close(session: impl Session, user: &User) -> Result<(), ShellError> {
    tokio::select! {
        closed = session.close() => Ok(closed?),
        () = user.interrupt.notified() => Err(ShellError::ClosedEarly),
    }
}

async fn interruptible(session: &mut impl Session, user: &mut User, command: ShellCommand) -> Result<(), ShellError> {
    let interrupt = user.interrupt.clone();
    tokio::select! {
        outcome = obey(session, user, command) => outcome,
        () = interrupt.notified() => Err(ShellError::Interrupted),
    }
}

async fn obey(session: &mut impl Session, user: &mut User, command: ShellCommand) -> Result<(), ShellError> {
    match command {
        ShellCommand::Get { client, resource, wants } => session.get(&client, &resource, wants).await?,
        ShellCommand::Release { client, resource } => {
            if !session.release(&client, &resource).await? {
                return Err(ShellError::NothingToRelease { client, resource });
            }
        }
        ShellCommand::Show => say(user, &held(session.held()))?,
        ShellCommand::Master => say(user, &masters(session.masters()))?,
        ShellCommand::Watch { resource } => watch::watch(session, user, &resource).await?,
        ShellCommand::Help => say(user, &help())?,
        ShellCommand::Quit => {}
    }
    Ok(())
}

/// Nothing is not an empty line.
fn say(user: &mut User, text: &str) -> Result<(), CliError> {
    if text.is_empty() { Ok(()) } else { user.screen.say(text) }
}

/// As Doorman's shell prints them: a block each, by resource and then by client.
fn held(mut held: Vec<Held>) -> String {
    held.sort_by(|a, b| (&a.resource, &a.client).cmp(&(&b.resource, &b.client)));
    let block = |held: &Held| {
        let capacity = if held.capacity.is_infinite() { "no limit".to_owned() } else { number(held.capacity) };
        let left = held.left.map_or_else(|| "no lease".to_owned(), |left| format!("{} s", left.as_secs()));
        let (client, resource) = (quoted(&held.client), quoted(&held.resource));
        format!("client: {client}\nresource: {resource}\ncapacity: {capacity}\nends in: {left}\n")
    };
    held.iter().map(block).collect::<Vec<_>>().join("\n")
}

/// As Doorman's shell quotes names.
fn quoted(name: &str) -> String {
    escaped(&format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))).into_owned()
}

fn masters(mut masters: Vec<(String, String)>) -> String {
    masters.sort();
    masters
        .iter()
        .map(|(client, address)| format!("{}: {}", escaped(client), escaped(address)))
        .collect::<Vec<_>>()
        .join("\n")
}
