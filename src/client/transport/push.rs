//! The stream of hints, with which a server tells its clients to refresh leases early. Servers of the original protocol
//! have no such stream; then changes take a refresh interval to arrive.

use std::{future::Future, pin::Pin, sync::Arc};

use leaseway_proto::push::{Hint, WatchRequest, push_client::PushClient};
use tokio::time::{Duration, Instant};
use tonic::{Code, Status, Streaming};

use super::{connection::Connection, failure::quoted};

/// The pause after a stream has ended or failed to open; it doubles up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// After a server has restarted, its clients reopen their streams spread over this time.
const JITTER: Duration = Duration::from_millis(100);
/// The pause if the server does not support hints. It may be upgraded meanwhile.
const PAUSE_UNSUPPORTED: Duration = Duration::from_secs(600);

/// The receiver of hints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listener {
    /// A client that calls GetCapacity under this name.
    Client(Arc<str>),
    /// A child node that calls GetServerCapacity under this name.
    Node(Arc<str>),
}

impl Listener {
    fn name(&self) -> &str {
        match self {
            Listener::Client(name) | Listener::Node(name) => name,
        }
    }

    fn request(&self) -> WatchRequest {
        match self {
            Listener::Client(name) => WatchRequest { client_id: Some(name.to_string()), server_id: None },
            Listener::Node(name) => WatchRequest { client_id: None, server_id: Some(name.to_string()) },
        }
    }
}

/// The stream of hints of the current master.
pub struct Hints {
    listener: Listener,
    /// The connection to the master, if one is known.
    connection: Option<Arc<Connection>>,
    stage: Stage,
    pause: Duration,
    /// When the last stream was requested.
    asked: Option<Instant>,
    /// The server rejected the last stream: its answers to requests do not shorten the pause.
    refused: bool,
}

enum Stage {
    /// No stream before this time.
    Idle(Instant),
    Opening(Pin<Box<dyn Future<Output = Result<Streaming<Hint>, Status>> + Send>>),
    Open(Box<Streaming<Hint>>),
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stage::Idle(until) => f.debug_tuple("Idle").field(until).finish(),
            Stage::Opening(_) => f.write_str("Opening"),
            Stage::Open(_) => f.write_str("Open"),
        }
    }
}

impl std::fmt::Debug for Hints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hints").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl Hints {
    /// A receiver that follows no server yet.
    pub fn new(listener: Listener) -> Hints {
        Hints {
            listener,
            connection: None,
            stage: Stage::Idle(Instant::now()),
            pause: PAUSE_FIRST,
            asked: None,
            refused: false,
        }
    }

    /// Follows the server behind `connection`, which has answered as master. A broken stream to it is reopened at once,
    /// but no more than once per second, because the answer shows that the server is up.
    pub fn follow(&mut self, connection: &Arc<Connection>) {
        if self.connection.as_ref().is_some_and(|known| Arc::ptr_eq(known, connection)) {
            if let Stage::Idle(until) = &mut self.stage
                && !self.refused
            {
                let now = Instant::now();
                let soonest = self.asked.map_or(now, |asked| now.max(asked + PAUSE_FIRST));
                *until = (*until).min(soonest + JITTER.mul_f64(fastrand::f64()));
            }
            return;
        }
        self.connection = Some(Arc::clone(connection));
        (self.stage, self.pause, self.asked) = (Stage::Idle(Instant::now()), PAUSE_FIRST, None);
    }

    /// Stops following: no master is known.
    pub fn stop(&mut self) {
        self.connection = None;
        self.stage = Stage::Idle(Instant::now());
    }

    /// Waits for the next hint: its resources, or `None` for all. Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<String>> {
        loop {
            let ended = match (&mut self.stage, &self.connection) {
                (_, None) => std::future::pending().await,
                (Stage::Idle(until), Some(connection)) => {
                    let connection = Arc::clone(connection);
                    tokio::time::sleep_until(*until).await;
                    self.opening(&connection);
                    continue;
                }
                (Stage::Opening(opening), _) => match opening.as_mut().await {
                    Ok(stream) => {
                        self.stage = Stage::Open(Box::new(stream));
                        continue;
                    }
                    Err(status) => status,
                },
                (Stage::Open(stream), _) => match stream.message().await {
                    Ok(Some(hint)) => return self.receive(hint),
                    Ok(None) => Status::unavailable("the stream has ended"),
                    Err(status) => status,
                },
            };
            self.ended(&ended);
        }
    }

    fn opening(&mut self, connection: &Arc<Connection>) {
        self.asked = Some(Instant::now());
        self.stage = Stage::Opening(Box::pin(open(Arc::clone(connection), self.listener.request())));
    }

    fn ended(&mut self, why: &Status) {
        // Another client has taken the stream, the server has too many streams, or it does not support hints.
        self.refused = matches!(why.code(), Code::Aborted | Code::ResourceExhausted | Code::Unimplemented);
        self.stage = Stage::Idle(Instant::now() + self.pause_after(why));
    }

    fn receive(&mut self, hint: Hint) -> Option<Vec<String>> {
        // The first message of a stream is empty and does not reset the pause: otherwise two clients with the same id
        // would take the stream from each other forever.
        if hint.everything || !hint.resource_id.is_empty() {
            self.pause = PAUSE_FIRST;
        }
        if hint.everything { None } else { Some(hint.resource_id) }
    }

    fn pause_after(&mut self, ended: &Status) -> Duration {
        tracing::debug!(name = self.listener.name(), code = ?ended.code(), "no hints: {}", quoted(ended.message()));
        if ended.code() == Code::Unimplemented {
            return PAUSE_UNSUPPORTED;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        // Jitter, because many clients lose their streams together.
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

async fn open(connection: Arc<Connection>, request: WatchRequest) -> Result<Streaming<Hint>, Status> {
    Ok(PushClient::new(connection.channel.clone()).watch(request).await?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Transport;

    fn connection(address: &str) -> Arc<Connection> {
        Transport::new().connection(&address.into()).expect("an address")
    }

    fn following() -> (Hints, Arc<Connection>) {
        let (mut hints, connection) = (Hints::new(Listener::Client("me".into())), connection("127.0.0.1:1"));
        hints.follow(&connection);
        (hints, connection)
    }

    fn idle_until(hints: &Hints) -> Instant {
        let Stage::Idle(until) = hints.stage else { panic!("{:?}", hints.stage) };
        until
    }

    fn unavailable() -> Status {
        Status::unavailable("restarting")
    }

    #[test]
    fn clients_and_child_nodes_name_themselves_in_different_fields() {
        let client = Listener::Client("me".into()).request();
        assert_eq!((client.client_id.as_deref(), client.server_id), (Some("me"), None));
        let node = Listener::Node("me".into()).request();
        assert_eq!((node.client_id, node.server_id.as_deref()), (None, Some("me")));
    }

    #[tokio::test]
    async fn pauses_double_up_to_a_minute_with_jitter() {
        let (mut hints, _) = following();
        assert_eq!(hints.pause_after(&Status::unimplemented("")), PAUSE_UNSUPPORTED, "does not count as a failure");
        for whole in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let (pause, whole) = (hints.pause_after(&unavailable()), Duration::from_secs(whole));
            assert!(pause >= whole / 2 && pause <= whole, "{pause:?} of {whole:?}");
        }
        let pauses: Vec<_> = (0..10).map(|_| hints.pause_after(&unavailable())).collect();
        assert!(pauses.iter().max() > pauses.iter().min(), "{pauses:?}");
    }

    #[tokio::test]
    async fn only_a_non_empty_hint_resets_the_pause() {
        let (mut hints, _) = following();
        let named = Hint { resource_id: vec!["r".to_owned()], ..Hint::default() };
        let everything = Hint { everything: true, ..Hint::default() };
        for (hint, resources, pause) in [
            (Hint::default(), Some(vec![]), PAUSE_MAX),
            (named, Some(vec!["r".to_owned()]), PAUSE_FIRST),
            (everything, None, PAUSE_FIRST),
        ] {
            hints.pause = PAUSE_MAX;
            assert_eq!((hints.receive(hint), hints.pause), (resources, pause));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_fails_to_open_is_reopened_after_a_pause() {
        let (mut hints, _) = following();
        hints.stage = Stage::Opening(Box::pin(std::future::ready(Err(unavailable()))));
        let once = std::pin::pin!(hints.next()).poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        assert!(once.is_pending());
        assert!(idle_until(&hints) >= Instant::now() + Duration::from_millis(500));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_reopens_a_broken_stream_at_once_but_at_most_once_a_second() {
        let (mut hints, connection) = following();
        hints.pause = PAUSE_MAX;
        hints.ended(&unavailable());
        hints.follow(&connection);
        assert!(idle_until(&hints) <= Instant::now() + JITTER);
        hints.opening(&connection);
        hints.ended(&unavailable());
        hints.follow(&connection);
        assert!(idle_until(&hints) >= Instant::now() + PAUSE_FIRST);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_does_not_shorten_the_pause_after_a_refusal() {
        for refusal in [Status::aborted(""), Status::resource_exhausted(""), Status::unimplemented("")] {
            let (mut hints, connection) = following();
            hints.pause = PAUSE_MAX;
            hints.ended(&refusal);
            hints.follow(&connection);
            assert!(idle_until(&hints) >= Instant::now() + PAUSE_MAX / 2, "{refusal:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_connection_is_followed_without_a_pause() {
        let (mut hints, _) = following();
        hints.ended(&unavailable());
        assert!(hints.pause > PAUSE_FIRST);
        hints.follow(&connection("127.0.0.1:2"));
        assert_eq!((idle_until(&hints), hints.pause), (Instant::now(), PAUSE_FIRST));
        hints.stop();
        let hint = tokio::time::timeout(Duration::from_secs(3_600), hints.next()).await;
        assert!(hint.is_err(), "there is no server to listen to");
    }
}
