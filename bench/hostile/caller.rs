//! Calls that are well formed. What is wrong is their number, their content, or that their answers are not read.

use std::{future::pending, rc::Rc};

use bytes::Bytes;
use h2::{
    SendStream,
    client::{ResponseFuture, SendRequest},
};
use http::{HeaderMap, Request, StatusCode};
use tokio::task::{AbortHandle, spawn_local};

use crate::hostile::attacker::Attacker;

/// A window that never blocks answers.
pub(crate) const WIDE: u32 = 1 << 30;

/// The maximum number of pending streams of a connection.
const CALLS: u32 = 1000;

/// Dropping it closes the connection.
pub(crate) struct Caller {
    attacker: Rc<Attacker>,
    requests: SendRequest<Bytes>,
    driver: AbortHandle,
}

/// A call that has begun.
pub(crate) type Begun = (ResponseFuture, SendStream<Bytes>);

impl Caller {
    /// It accepts `window` bytes of each answer.
    pub(crate) async fn open(attacker: &Rc<Attacker>, window: u32) -> Option<Caller> {
        let wire = attacker.connect().await?;
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(window)
            .initial_connection_window_size(WIDE)
            .initial_max_send_streams(CALLS as usize);
        let Ok((requests, driver)) = builder.handshake(wire).await else {
            attacker.was_ended();
            return None;
        };
        let driver = spawn_local(driver).abort_handle();
        Some(Caller { attacker: Rc::clone(attacker), requests, driver })
    }

    /// A gRPC request with additional headers.
    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)]) -> Request<()> {
        let usual = [("content-type", "application/grpc"), ("te", "trailers")];
        self.request("POST", path, &[&usual, headers].concat())
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Request<()> {
        let plan = &self.attacker.plan;
        let uri = format!("{}://{}{path}", plan.dialer.scheme(), plan.grpc);
        let request = Request::builder().method(method).uri(uri);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(()).expect("requests of attacks are made of constants")
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.driver.is_finished()
    }

    pub(crate) async fn begin(&mut self, request: Request<()>) -> Result<Begun, h2::Error> {
        self.attacker.acts(1).await;
        let mut ready = self.requests.clone().ready().await?;
        ready.send_request(request, false)
    }

    /// Makes a call, and discards the answer.
    pub(crate) async fn ask(&mut self, request: Request<()>, message: Bytes) -> Result<(), h2::Error> {
        let (answer, mut body) = self.begin(request).await?;
        // It may have been refused already.
        let _ = body.send_data(message, true);
        self.attacker.read(answer).await
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if self.has_ended() {
            self.attacker.was_ended();
        }
        self.driver.abort();
    }
}

impl Attacker {
    /// Reads an answer to its end. A reset stream counts as an answer.
    pub(crate) async fn read(&self, answer: ResponseFuture) -> Result<(), h2::Error> {
        let outcome = async {
            let (head, mut body) = answer.await?.into_parts();
            while let Some(data) = body.data().await {
                let length = data?.len();
                body.flow_control().release_capacity(length)?;
            }
            let trailers = body.trailers().await?.unwrap_or_default();
            Ok(is_refusal(&head.headers) || is_refusal(&trailers) || head.status != StatusCode::OK)
        };
        match outcome.await {
            Ok(is_refused) => {
                if is_refused {
                    self.was_refused();
                }
                Ok(())
            }
            Err(error) if h2::Error::is_reset(&error) => {
                self.was_refused();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Ends when a call is refused. Answers that have begun are kept and not read.
    pub(crate) async fn leave_unread(&self, (answer, body): Begun) {
        let Ok(response) = answer.await else { return };
        if !response.headers().contains_key(STATUS) {
            pending::<()>().await;
        }
        self.was_refused();
        drop((response, body));
    }
}

const STATUS: &str = "grpc-status";

fn is_refusal(headers: &HeaderMap) -> bool {
    headers.get(STATUS).is_some_and(|status| status != "0")
}

/// Repeats this, and reconnects when the connection breaks.
pub(crate) async fn repeat(
    attacker: Rc<Attacker>,
    window: u32,
    mut work: impl AsyncFnMut(&mut Caller) -> Result<(), h2::Error>,
) {
    loop {
        let Some(mut caller) = Caller::open(&attacker, window).await else { continue };
        while work(&mut caller).await.is_ok() {}
    }
}
