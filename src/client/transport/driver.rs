//! The one task that carries out a session: sends what it says, when it says so, and reports what comes back. It
//! follows the stream of hints from the server that answers as master, and distrusts connections that do not answer.
//!
//! What is asked for, and what becomes of an answer, is the [`Asker`]'s: a client's handles, or a child node's uplink.

use std::{future::Future, pin::Pin, sync::Arc};

use tokio::time::{Duration, Instant};
use tonic::Status;

use super::{
    clock,
    connection::{Channel, Connection, Transport},
    push::Hints,
};
use crate::session::{Body, Outgoing};

/// The owner of the session that a [`Driver`] carries out.
pub trait Asker: Send {
    /// What it asks for, of one resource.
    type Demand: Send;
    /// What the master answers.
    type Answer: Send;

    /// What is to be done now. `None`: nothing, for ever.
    fn step(&mut self) -> impl Future<Output = Option<Step<Self::Demand>>> + Send;

    /// The call that sends `body` over `channel`, and reads the answer. Without a channel it fails.
    fn call(&mut self, channel: Result<Channel, Status>, body: Body<Self::Demand>) -> Call<Self::Answer>;

    /// A request has ended, one way or another.
    fn ended(&mut self, ended: Ended<'_, Self::Answer>);

    /// The master hints these resources, which may be none; `None` stands for all.
    fn hinted(&mut self, resources: Option<Vec<String>>);

    /// Returns when something else has happened that [`step`](Self::step) should know of. Can be cancelled at any time.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;
}

/// A request under way.
pub type Call<A> = Pin<Box<dyn Future<Output = Result<Reply<A>, Status>> + Send>>;

/// What is to be done now.
#[derive(Debug)]
pub struct Step<D> {
    pub outgoing: Option<Outgoing<D>>,
    /// The request whose answer still counts.
    pub in_flight: Option<u64>,
    /// The next step is then, at the latest.
    pub wake: Option<Instant>,
}

/// What a server says.
#[derive(Debug)]
pub enum Reply<A> {
    /// It is the master, and answers.
    Master(A),
    /// Another is to be asked, if it is known which.
    Redirect(Option<String>),
}

/// A request that has ended.
#[derive(Debug)]
pub struct Ended<'a, A> {
    pub number: u64,
    /// Where it went.
    pub server: &'a Arc<str>,
    /// The connection it went over.
    pub connection: Option<&'a Arc<Connection>>,
    /// How long that was.
    pub took: Duration,
    pub outcome: Outcome<A>,
}

/// How a request has ended.
#[derive(Debug)]
pub enum Outcome<A> {
    /// A server has replied.
    Replied(Reply<A>),
    Failed(Status),
    /// There was no answer in time; the session has given it up already.
    Late,
}

/// Carries out the session of an [`Asker`].
pub struct Driver<A: Asker> {
    asker: A,
    transport: Transport,
    hints: Option<Hints>,
    /// Where the last request went.
    connection: Option<Arc<Connection>>,
    sent: Option<Sent<A::Answer>>,
}

/// The request under way.
struct Sent<A> {
    number: u64,
    server: Arc<str>,
    at: Instant,
    /// It asks for leases, and gives none back.
    asks: bool,
    call: Call<A>,
}

enum Event<A> {
    Ended(Result<Reply<A>, Status>),
    Hinted(Option<Vec<String>>),
    /// Nothing that the driver knows of.
    Other,
}

impl<A: Asker> Driver<A> {
    /// Sends over connections of `transport`. Without `hints` none are listened to.
    pub fn new(asker: A, transport: Transport, hints: Option<Hints>) -> Driver<A> {
        Driver { asker, transport, hints, connection: None, sent: None }
    }

    /// Runs until nothing is left to do.
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

    /// Until something has happened that the next step is about.
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
        let asks = matches!(body, Body::Ask(_));
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

    /// The session waits no longer for the answer.
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
