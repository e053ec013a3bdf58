//! Responses. Their bytes are charged to the connection until they are sent.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{BufMut as _, Bytes};
use futures_util::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header::CONTENT_TYPE};
use hyper::body::{Body, Frame};
use leaseway_proto::{doorman::GetCapacityResponse, push::Hint};
use prost::Message;
use tonic::Status;

use super::request_body::PREFIX;
use crate::{
    listen::waiting_bytes::{Charge, ChargedBytes},
    runtime::coop::{ChunkPermit, ENTRIES},
};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const OK: HeaderValue = HeaderValue::from_static("0");

/// A message with its prefix.
pub(super) fn framed<M: Message>(message: &M) -> Bytes {
    let mut framed = Vec::with_capacity(PREFIX + message.encoded_len());
    framed.put_bytes(0, PREFIX);
    message.encode(&mut framed).expect("a vector grows as needed");
    set_length(&mut framed);
    framed.into()
}

fn set_length(framed: &mut [u8]) {
    let length = framed.len() - PREFIX;
    let length = u32::try_from(length).expect("answers are as long as requests, which are at most 4 GiB");
    framed[1..PREFIX].copy_from_slice(&length.to_be_bytes());
}

/// Encodes an answer; a long one in chunks, yielding between them.
pub(super) async fn framed_capacity(answer: GetCapacityResponse) -> Bytes {
    if answer.response.len() <= ENTRIES {
        return framed(&answer);
    }
    // Boxed, so that the futures of short answers stay small.
    Box::pin(framed_in_chunks(answer)).await
}

async fn framed_in_chunks(answer: GetCapacityResponse) -> Bytes {
    let GetCapacityResponse { response, mastership, problem } = answer;
    let mut framed = vec![0; PREFIX];
    let mut append = |part: GetCapacityResponse| part.encode(&mut framed).expect("a vector grows as needed");
    let mut rest = response.into_iter();
    let mut permit = ChunkPermit::acquire().await;
    while rest.len() > 0 {
        let response = rest.by_ref().take(ENTRIES).collect();
        append(GetCapacityResponse { response, ..Default::default() });
        permit = permit.next().await;
    }
    append(GetCapacityResponse { response: Vec::new(), mastership, problem });
    set_length(&mut framed);
    framed.into_boxed_slice().into()
}

/// A response with one framed message. Resizes the charge of the request to the size of the answer.
pub(super) fn encoded(framed: Result<Bytes, Status>, request: Charge) -> Response<Answer> {
    let charged = framed.and_then(|bytes| {
        let charge = Some(request.answered(bytes.len())?);
        Ok(ChargedBytes { bytes, charge })
    });
    match charged {
        Ok(message) => grpc(Answer::Message(message)),
        Err(status) => refusal(status),
    }
}

/// The response to a refused request: only trailers, with the error.
pub(super) fn refusal(status: Status) -> Response<Answer> {
    status.into_http::<()>().map(|()| Answer::Sent)
}

/// A response with a stream of hints.
pub(super) fn hints(hints: Hints, request: Charge) -> Response<Answer> {
    grpc(Answer::Stream(StreamAnswer { source: Some(Source::Hints(hints)), first: None, request }))
}

fn grpc(body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// A response in progress.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

/// Drops a call at its deadline. The timer starts only if the call is not answered on its first poll.
pub(super) fn within(
    timeout: Option<Duration>,
    answering: impl Future<Output = Result<Response<Answer>, Infallible>> + Send + 'static,
) -> Answering {
    let Some(timeout) = timeout else { return Box::pin(answering) };
    Box::pin(async move {
        // As in tonic: CANCELLED. Callers report DEADLINE_EXCEEDED themselves.
        let expired = |_| Ok(refusal(Status::cancelled("Timeout expired")));
        tokio::time::timeout(timeout, answering).await.unwrap_or_else(expired)
    })
}

/// The body of a response.
pub(crate) enum Answer {
    /// One message, then trailers.
    Message(ChargedBytes),
    /// The trailers of a successful call remain to be sent.
    Trailers,
    Sent,
    Stream(StreamAnswer),
}

pub(super) type Hints = Pin<Box<dyn Stream<Item = Result<Hint, Status>> + Send>>;

/// A stream of frames, produced on demand.
pub(crate) struct StreamAnswer {
    /// `None` after the end of the stream.
    source: Option<Source>,
    first: Option<Frame<ChargedBytes>>,
    /// The charge of the request, which lasts as long as its answer.
    request: Charge,
}

enum Source {
    /// Bypasses tonic, which keeps a buffer of 8 KiB per stream: there are many streams of hints, and most are idle.
    /// Each hint is encoded into a buffer of its own size.
    Hints(Hints),
    Tonic(tonic::body::Body),
}

impl Source {
    /// The next frame. An error is the status at the end of the stream.
    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self {
            Source::Hints(hints) => hints.as_mut().poll_next(task).map(|hint| {
                let hint = hint.unwrap_or_else(|| Err(Status::ok("")));
                Some(hint.map(|hint| Frame::data(framed(&hint))))
            }),
            Source::Tonic(body) => Pin::new(body).poll_frame(task),
        }
    }
}

impl StreamAnswer {
    /// Wraps tonic's answer. tonic encodes on demand, and until then keeps the decoded answer, whose size is unknown.
    /// So the first frame, which is usually the whole message, is requested immediately. Fails if it exceeds the
    /// limits of waiting bytes.
    pub(super) async fn begin(body: tonic::body::Body, request: Charge) -> Result<StreamAnswer, Status> {
        let mut source = Source::Tonic(body);
        let first = poll_fn(|task| Poll::Ready(source.poll(task))).await;
        let mut answer = StreamAnswer { source: Some(source), first: None, request };
        match first {
            Poll::Pending => {}
            Poll::Ready(Some(frame)) => answer.first = Some(answer.charged(frame?)?),
            Poll::Ready(None) => answer.source = None,
        }
        Ok(answer)
    }

    fn charged(&self, frame: Frame<Bytes>) -> Result<Frame<ChargedBytes>, Status> {
        let charge = match frame.data_ref() {
            Some(data) => Some(Charge::answer(self.request.connection(), data.len())?),
            None => None,
        };
        Ok(frame.map_data(|bytes| ChargedBytes { bytes, charge }))
    }

    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Option<Result<Frame<ChargedBytes>, Status>>> {
        if self.first.is_some() {
            return Poll::Ready(self.first.take().map(Ok));
        }
        let Some(source) = &mut self.source else { return Poll::Ready(None) };
        source.poll(task).map(|frame| {
            let frame = frame?;
            Some(frame.and_then(|frame| self.charged(frame)).or_else(|status| self.end(&status)))
        })
    }

    fn end(&mut self, status: &Status) -> Result<Frame<ChargedBytes>, Status> {
        self.source = None;
        let mut trailers = HeaderMap::with_capacity(2);
        status.add_header(&mut trailers)?;
        Ok(Frame::trailers(trailers))
    }

    fn is_end_stream(&self) -> bool {
        let has_ended = match &self.source {
            None => true,
            Some(Source::Hints(_)) => false,
            Some(Source::Tonic(body)) => body.is_end_stream(),
        };
        self.first.is_none() && has_ended
    }
}

impl Body for Answer {
    type Data = ChargedBytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<ChargedBytes>, Status>>> {
        if let Answer::Stream(stream) = &mut *self {
            let polled = stream.poll(task);
            if let Poll::Ready(None) = polled {
                *self = Answer::Sent;
            }
            return polled;
        }
        let (frame, rest) = match std::mem::replace(&mut *self, Answer::Sent) {
            Answer::Message(message) => (Frame::data(message), Answer::Trailers),
            Answer::Trailers => {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(STATUS, OK);
                (Frame::trailers(trailers), Answer::Sent)
            }
            Answer::Sent | Answer::Stream(_) => return Poll::Ready(None),
        };
        *self = rest;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Answer::Message(_) | Answer::Trailers => false,
            Answer::Sent => true,
            Answer::Stream(stream) => stream.is_end_stream(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use leaseway_core::types::PrincipalShare;
    use leaseway_proto::doorman::{Lease, Mastership, Problem, ResourceResponse};

    use super::*;
    use crate::{
        listen::{
            accounts::Accounts,
            waiting_bytes::{ConnectionBytes, REQUEST, WaitingBytes},
        },
        node::block_on,
    };

    fn answer(entries: usize) -> GetCapacityResponse {
        let entry = |number: usize| ResourceResponse {
            resource_id: Some(format!("r{number}")),
            gets: Some(Lease { capacity: Some(number as f64), ..Lease::default() }),
            ..ResourceResponse::default()
        };
        GetCapacityResponse {
            response: (0..entries).map(entry).collect(),
            mastership: Some(Mastership { master_address: Some("a:1".into()) }),
            problem: vec![Problem::default(); 2],
        }
    }

    #[test]
    fn encoding_in_chunks_gives_the_same_bytes() {
        for entries in [0, ENTRIES, ENTRIES + 1, 3 * ENTRIES, 1000] {
            assert_eq!(block_on(framed_capacity(answer(entries))), framed(&answer(entries)), "{entries} entries");
        }
    }

    /// A connection with a limit of `bytes`, and a request on it.
    fn connection(bytes: usize) -> (Arc<ConnectionBytes>, Charge) {
        let account = Accounts::default().of_address([10, 0, 0, 1].into());
        let waiting_bytes = Arc::new(WaitingBytes::new(bytes, bytes, PrincipalShare::ALL));
        let connection = Arc::new(ConnectionBytes::new(waiting_bytes, account));
        let request = Charge::request(&connection, REQUEST).expect("there is room");
        (connection, request)
    }

    #[test]
    fn an_answer_is_a_message_and_trailers_and_charged_until_it_is_sent() {
        let (connection, charge) = connection(1 << 20);
        let response = encoded(Ok(framed(&answer(1))), charge);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/grpc");
        let mut body = response.into_body();
        let mut task = Context::from_waker(std::task::Waker::noop());
        let mut frames = Vec::new();
        while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut task) {
            frames.push(frame.expect("a frame"));
        }
        let [first, trailers] = &frames[..] else { panic!("two frames") };
        assert_eq!(first.data_ref().map(|data| &data.bytes), Some(&framed(&answer(1))));
        assert_eq!(trailers.trailers_ref().map(|trailers| &trailers[STATUS]), Some(&OK));
        assert!(body.is_end_stream());
        assert!(connection.activity().has_answers());
        drop(frames);
        assert!(connection.activity().is_idle());
    }

    #[test]
    fn an_answer_beyond_the_budget_is_refused() {
        let (connection, charge) = connection(4 * REQUEST);
        let response = encoded(Ok(vec![0; 5 * REQUEST].into()), charge);
        assert_eq!(response.headers()[STATUS], "8");
        assert!(connection.activity().is_idle());
    }
}
