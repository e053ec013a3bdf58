//! An answer that is being made.

use std::{convert::Infallible, future::Future, pin::Pin, time::Duration};

use http::Response;
use tonic::Status;

use super::{
    answer::{Answer, refusal},
    deadline::Bounded,
};

pub(super) type Answering = Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

pub(super) fn refused(status: Status) -> Answering {
    Box::pin(std::future::ready(Ok(refusal(status))))
}

/// Watches the deadline of a call that has one.
pub(super) fn within(
    timeout: Option<Duration>,
    answering: impl Future<Output = Result<Response<Answer>, Infallible>> + Send + 'static,
) -> Answering {
    match timeout {
        Some(timeout) => Box::pin(Bounded::new(answering, timeout)),
        None => Box::pin(answering),
    }
}

/// Within the span of its request.
#[cfg(feature = "otlp")]
pub(super) fn spanned(mut span: crate::observe::traces::RequestSpan, answering: Answering) -> Answering {
    Box::pin(async move {
        let answered = answering.await;
        if let Ok(response) = &answered {
            span.answered(response);
        }
        answered
    })
}
