//! `leaseway shell`: runs several clients from one prompt, like Doorman's shell.
//!
//! [`lines`] reads input, [`command`] parses it, and this module executes it through a [`Session`], which holds the
//! leases.

mod clients;
mod command;
mod complete;
mod lines;
#[cfg(test)]
mod tests;
mod user;
mod watch;

use std::time::Duration;

use clap::Args;
use leaseway_core::types::{Amount, escaped};
use leaseway_proto::status::Resource;

use crate::Outcome;
use crate::connect::{Target, block_on};
use crate::error::CliError;
use crate::output::number;
use clients::ShellClients;
use command::{ShellCommand, SyntaxError, help};
use lines::Line;
use user::User;
use watch::Observer;

#[derive(Args)]
pub(crate) struct Shell {
    #[command(flatten)]
    target: Target,
}

impl Shell {
    pub(crate) fn run(self) -> Outcome {
        let session = ShellClients::new(self.target)?;
        match block_on(async { Ok(run_commands(session, User::at_standard_input()?).await) })? {
            Ended::Well => Ok(()),
            Ended::WithFailures => Err(CliError::ShellFailed),
        }
    }
}

/// Executes the commands of a shell. Each call may be cancelled before it completes.
trait Session {
    /// Requests capacity for a client and keeps the lease refreshed until it is released. A later call changes `wants`.
    async fn get(&mut self, client: &str, resource: &str, wants: Amount) -> Result<(), CliError>;

    /// Releases a resource. Returns false if the client has not requested it.
    async fn release(&mut self, client: &str, resource: &str) -> Result<bool, CliError>;

    /// All resources requested and not yet released, in any order.
    fn held(&self) -> Vec<Held>;

    /// Each client with the address of its server, in any order.
    fn masters(&self) -> Vec<(String, String)>;

    /// The current status of a resource.
    async fn resource(&mut self, resource: &str) -> Result<Resource, CliError>;

    /// Releases everything.
    async fn close(self) -> Result<(), CliError>;
}

/// A client's capacity of a resource.
#[derive(Debug, Clone, PartialEq)]
struct Held {
    resource: String,
    client: String,
    capacity: f64,
    /// Time until the lease ends; `None` without a lease.
    left: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// All commands succeeded, or a user at a terminal has seen the failures.
    Well,
    /// A command from a file or pipe failed.
    WithFailures,
}

#[derive(Debug, thiserror::Error)]
enum ShellError {
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    #[error(transparent)]
    Session(#[from] CliError),
    #[error("{client} has not requested `{resource}` in this shell; `show` lists all requests")]
    NothingToRelease { client: String, resource: String },
    #[error("interrupted; the command may have taken effect")]
    Interrupted,
    #[error("interrupted; leases that were not released will expire")]
    ClosedEarly,
    #[error("{0}")]
    Lines(String),
}

async fn run_commands(mut session: impl Session, mut user: User) -> Ended {
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
                user.print_error(&ShellError::Lines(why));
                break;
            }
        };
        if let Err(error) = outcome {
            failed = true;
            user.print_error(&error);
        }
    }
    let closed = close(session, &user).await;
    if let Err(error) = &closed {
        user.print_error(error);
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
        outcome = execute(session, user, command) => outcome,
        () = interrupt.notified() => Err(ShellError::Interrupted),
    }
}

async fn execute(session: &mut impl Session, user: &mut User, command: ShellCommand) -> Result<(), ShellError> {
    match command {
        ShellCommand::Get { client, resource, wants } => session.get(&client, &resource, wants).await?,
        ShellCommand::Release { client, resource } => {
            if !session.release(&client, &resource).await? {
                return Err(ShellError::NothingToRelease { client, resource });
            }
        }
        ShellCommand::Show => print_unless_empty(user, &held(session.held()))?,
        ShellCommand::Master => print_unless_empty(user, &masters(session.masters()))?,
        ShellCommand::Watch { resource } => watch::watch(session, user, &resource).await?,
        ShellCommand::Help => print_unless_empty(user, &help())?,
        ShellCommand::Quit => {}
    }
    Ok(())
}

/// Prints text unless it is empty.
fn print_unless_empty(user: &mut User, text: &str) -> Result<(), CliError> {
    if text.is_empty() { Ok(()) } else { user.screen.print(text) }
}

/// Sorted by resource and client, in the format of Doorman's shell.
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

/// Quoted as in Doorman's shell.
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
