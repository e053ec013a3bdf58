//! `watch`: the status of a resource, once per second.

use std::{pin::pin, time::Duration};

use leaseway_proto::status::{GetStatusRequest, Resource};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{Session, lines::Purpose, user::User};
use crate::connect::{Observed, Target, get_status};
use crate::error::CliError;
use crate::inspect::status::capacity;
use crate::output::{in_words, learning, number};

const INTERVAL: Duration = Duration::from_secs(1);

/// Prints a row immediately, and another each second at a terminal. A later error is printed in place of a row, because
/// it may be temporary.
pub(super) async fn watch(session: &mut impl Session, user: &mut User, resource: &str) -> Result<(), CliError> {
    let first = session.resource(resource).await?;
    user.screen.print(&heading())?;
    user.screen.print(&row(Duration::ZERO, &first))?;
    if !user.present {
        return Ok(());
    }
    let mut stopped = pin!(user.lines.next(Purpose::Stop));
    let since = Instant::now();
    let mut ticks = interval_at(since + INTERVAL, INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let next = async {
            ticks.tick().await;
            session.resource(resource).await
        };
        let answer = tokio::select! {
            biased;
            _ = &mut stopped => return Ok(()),
            answer = next => answer,
        };
        let text = answer.map_or_else(|error| in_words(&error), |resource| row(since.elapsed(), &resource));
        user.screen.print_above(&text)?;
    }
}

fn heading() -> String {
    columns(["AFTER", "CAPACITY", "WANTS", "GRANTED", "HELD", "CLIENTS", "LEARNING"].map(str::to_owned))
}

fn row(after: Duration, resource: &Resource) -> String {
    columns([
        format!("{} s", after.as_secs()),
        capacity(resource),
        number(resource.wants),
        number(resource.granted),
        number(resource.held),
        resource.subclients.to_string(),
        learning(resource.learning_ms),
    ])
}

/// Fixed widths, because a row is printed before the next one is known.
fn columns(cells: [String; 7]) -> String {
    let [after, rest @ ..] = cells;
    rest.iter().fold(format!("{after:>7}"), |line, cell| format!("{line} {cell:>13}"))
}

/// Queries the master for the status of resources, over one connection while that works.
pub(crate) struct Observer {
    target: Target,
    master: Option<Observed>,
}

impl Observer {
    pub(crate) fn new(target: Target) -> Observer {
        Observer { target, master: None }
    }

    pub(crate) async fn resource(&mut self, resource: &str) -> Result<Resource, CliError> {
        let request = GetStatusRequest { resource_id: resource.to_owned(), page_size: 1, page_token: String::new() };
        let known = match self.master.take() {
            Some(Observed { address, channel, .. }) => {
                get_status(&channel, request.clone()).await.ok().map(|status| Observed { status, address, channel })
            }
            None => None,
        };
        let observed = match known.filter(|observed| observed.status.is_master) {
            Some(observed) => observed,
            None => self.target.observe(&request, false).await?,
        };
        let found = observed.status.resources.first().cloned();
        self.master = Some(observed);
        found.ok_or_else(|| CliError::NoSuchResource(resource.to_owned()))
    }
}
