//! The task that runs a session: it sends requests when they are due, and reports their outcome. It follows the stream
//! of hints of the server that answers as master, and drops connections that do not answer.
//!
//! The [`Asker`] owns the session, builds the requests and handles the answers.

use std::{future::Future, pin::Pin, sync::Arc};

use tokio::time::{Duration, Instant};
use tonic::Status;

use super::{
    clock,
    connection::{Channel, Connection, Transport},
    push::Hints,
};
use crate::session::{Body, Outgoing};

/// The owner of the session that a [`Driver`] runs: a client, or the uplink of a child node.
pub trait Asker: Send {
    /// The demand for one resource.
    type Demand: Send;
    /// The answer of a master.
    type Answer: Send;

    /// The next step, or `None` if the session has ended.
    fn step(&mut self) -> impl Future<Output = Option<Step<Self::Demand>>> + Send;

    /// The call that sends `body` over `channel` and decodes the answer. It fails without a channel.
    fn call(&mut self, channel: Result<Channel, Status>, body: Body<Self::Demand>) -> Call<Self::Answer>;

    /// Reports that a request has ended.
    fn ended(&mut self, ended: Ended<'_, Self::Answer>);

    /// Reports a hint of the master for these resources; `None` stands for all.
    fn hinted(&mut self, resources: Option<Vec<String>>);

    /// Returns when anything else has happened that makes a [`step`](Self::step) necessary. Cancel safe.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;
}

/// A request in flight.
pub type Call<A> = Pin<Box<dyn Future<Output = Result<Reply<A>, Status>> + Send>>;

/// What the driver has to do now.
#[derive(Debug)]
pub struct Step<D> {
    /// The request to send.
    pub outgoing: Option<Outgoing<D>>,
    /// The request whose answer still counts; any other is abandoned.
    pub in_flight: Option<u64>,
    /// When to take the next step at the latest.
    pub wake: Option<Instant>,
}

/// The reply of a server.
#[derive(Debug)]
pub enum Reply<A> {
    /// The answer of the master.
    Master(A),
    /// The server is not the master; it may know which server is.
    Redirect(Option<String>),
}

/// A request that has ended.
#[derive(Debug)]
pub struct Ended<'a, A> {
    /// The number of the request.
    pub number: u64,
    /// The server that it was sent to.
    pub server: &'a Arc<str>,
    /// The connection that it was sent over.
    pub connection: Option<&'a Arc<Connection>>,
    /// How long it took.
    pub took: Duration,
    /// How it ended.
    pub outcome: Outcome<A>,
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Outcome<A> {
    /// A server replied.
    Replied(Reply<A>),
    /// The request failed.
    Failed(Status),
    /// No reply before the deadline; the session has abandoned the request.
    Late,
}

/// Runs the session of an [`Asker`].
pub struct Driver<A: Asker> {
    asker: A,
    transport: Transport,
    hints: Option<Hints>,
    /// The connection of the last request.
    connection: Option<Arc<Connection>>,
    sent: Option<Sent<A::Answer>>,
}

/// The request in flight.
struct Sent<A> {
    number: u64,
    server: Arc<str>,
    at: Instant,
    /// Whether it asks for leases, rather than releasing them.
    asks: bool,
    call: Call<A>,
}

enum Event<A> {
    Ended(Result<Reply<A>, Status>),
    Hinted(Option<Vec<String>>),
    /// A timer, or an event of the asker.
    Other,
}

impl<A: Asker> Driver<A> {
    /// A driver that sends over connections of `transport`, and listens to `hints` if there are any.
    pub fn new(asker: A, transport: Transport, hints: Option<Hints>) -> Driver<A> {
        Driver { asker, transport, hints, connection: None, sent: None }
    }

    /// Runs until the session has ended.
    pub async fn run(mut self) {
        loop {
            let step = self.asker.step().await;
            let in_flight = step.as_ref().and_then(|step| step.in_flight);
            if in_flight != self.sent.as_ref().map(|sent| sent.number) {
                self.abandon_request();
            }
            let Some(Step { outgoing, wake, .. }) = step else { return };
            if let Some(outgoing) = outgoing {
                self.send(outgoing);
            }
            match self.wait(wake).await {
                Event::Ended(result) => self.finish(result),
                Event::Hinted(resources) => self.asker.hinted(resources),
                Event::Other => {}
            }
        }
    }

    /// Waits for the next event.
    async fn wait(&mut self, wake: Option<Instant>) -> Event<A::Answer> {
        let wake = async {
            match wake {
                Some(at) => clock::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let result = async {
            match &mut self.sent {
                Some(sent) => sent.call.as_mut().await,
                None => std::future::pending().await,
            }
        };
        let hint = async {
            match &mut self.hints {
                Some(hints) => hints.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            result = result => Event::Ended(result),
            () = wake => Event::Other,
            hint = hint => Event::Hinted(hint),
            () = self.asker.changed() => Event::Other,
        }
    }

    fn send(&mut self, outgoing: Outgoing<A::Demand>) {
        let Outgoing { number, target: server, body, .. } = outgoing;
        let asks = !matches!(body, Body::Release(_));
        let channel = self.connect(&server);
        let call = self.asker.call(channel, body);
        self.sent = Some(Sent { number, server, at: Instant::now(), asks, call });
    }

    fn connect(&mut self, server: &Arc<str>) -> Result<Channel, Status> {
        let known = self.connection.take().filter(|connection| connection.address == *server);
        let connection = match known {
            Some(connection) => connection,
            None => self.transport.connection(server).map_err(|error| Status::invalid_argument(error.to_string()))?,
        };
        Ok(self.connection.insert(connection).channel.clone())
    }

    /// Drops the request in flight: the session has abandoned it.
    fn abandon_request(&mut self) {
        let Some(late) = self.sent.take() else { return };
        if let Some(connection) = self.connection.take() {
            self.transport.distrust(&connection);
            if let Some(hints) = &mut self.hints {
                hints.stop();
            }
        }
        self.report(&late, Outcome::Late);
    }

    fn finish(&mut self, result: Result<Reply<A::Answer>, Status>) {
        let Some(sent) = self.sent.take() else { return };
        if let (Ok(Reply::Master(_)), true) = (&result, sent.asks)
            && let (Some(hints), Some(connection)) = (&mut self.hints, &self.connection)
        {
            hints.follow(connection);
        }
        self.report(&sent, result.map_or_else(Outcome::Failed, Outcome::Replied));
    }

    fn report(&mut self, sent: &Sent<A::Answer>, outcome: Outcome<A::Answer>) {
        self.asker.ended(Ended {
            number: sent.number,
            server: &sent.server,
            connection: self.connection.as_ref(),
            took: sent.at.elapsed(),
            outcome,
        });
    }
}

#[cfg(test)]
mod tests;
