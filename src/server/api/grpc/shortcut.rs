//! Methods of guests that are answered past tonic, for the same reason as GetCapacity: see [`super::front`].

use std::{fmt, future::Future, time::Duration};

use prost::Message;
use tonic::Status;

use super::{
    answer,
    answering::{Answering, within},
    body::RequestBody,
    caller::GrpcCaller,
    unary,
};

type Method = dyn Fn(GrpcCaller, RequestBody, Option<Duration>) -> Answering + Send + Sync;

/// A method of one message in and one out, which is called far more often than all others.
pub struct Shortcut {
    path: &'static str,
    answer: Box<Method>,
}

impl Shortcut {
    /// `path` is of the service and the method, as in requests. Calls that are not plain go to tonic all the same.
    pub fn new<Q, A, F>(
        path: &'static str,
        method: impl Fn(GrpcCaller, Q) -> F + Clone + Send + Sync + 'static,
    ) -> Shortcut
    where
        Q: Message + Default + 'static,
        A: Message + 'static,
        F: Future<Output = Result<A, Status>> + Send,
    {
        let answer = move |caller: GrpcCaller, mut body: RequestBody, timeout: Option<Duration>| {
            let method = method.clone();
            within(timeout, async move {
                let asked = unary::read::<Q>(&mut body).await;
                let under_way = body.into_charge();
                let answered = match asked {
                    Ok(asked) => method(caller, asked).await,
                    Err(status) => Err(status),
                };
                Ok(answer::message(answered, under_way))
            })
        };
        Shortcut { path, answer: Box::new(answer) }
    }

    pub(super) fn is_to(&self, path: &str) -> bool {
        self.path == path
    }

    pub(super) fn answer(&self, caller: GrpcCaller, body: RequestBody, timeout: Option<Duration>) -> Answering {
        (self.answer)(caller, body, timeout)
    }
}

impl fmt::Debug for Shortcut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shortcut").field(&self.path).finish()
    }
}
