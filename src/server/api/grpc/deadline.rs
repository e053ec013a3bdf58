//! Deadlines of calls, as `grpc-timeout` names them.
//!
//! Most calls are answered when they are first polled, or once every request on this thread has been enqueued. So a
//! timer is armed only when a call with a deadline has to wait.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Response};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

use super::answer::{Answer, refusal};

/// The protocol has no more digits; with more, hours would overflow.
const MAX_DIGITS: usize = 8;

/// The deadline in `grpc-timeout`; `None` if it is malformed: as with tonic, such a call has no deadline.
pub(super) fn timeout(said: &HeaderValue) -> Option<Duration> {
    let text = said.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > MAX_DIGITS {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// A call with a deadline. When that has passed the call is dropped, and the caller told.
pub(super) struct Bounded<F> {
    call: Pin<Box<F>>,
    ends: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<F> Bounded<F> {
    pub(super) fn new(call: F, timeout: Duration) -> Bounded<F> {
        Bounded { call: Box::pin(call), ends: Instant::now() + timeout, timer: None }
    }
}

impl<E, F: Future<Output = Result<Response<Answer>, E>>> Future for Bounded<F> {
    type Output = Result<Response<Answer>, E>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(answer) = self.call.as_mut().poll(task) {
            return Poll::Ready(answer);
        }
        let ends = self.ends;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(ends)));
        timer.as_mut().poll(task).map(|()| Ok(expired()))
    }
}

/// As tonic answers: CANCELLED. DEADLINE_EXCEEDED is what the caller reports itself.
fn expired() -> Response<Answer> {
    refusal(Status::cancelled("Timeout expired"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Option<Duration> {
        timeout(&text.parse().expect("a header"))
    }

    #[test]
    fn timeouts_are_read_as_the_protocol_has_them() {
        for (text, millis) in [("1H", 3_600_000), ("2M", 120_000), ("3S", 3_000), ("4m", 4), ("5000u", 5)] {
            assert_eq!(said(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(said("7n"), Some(Duration::from_nanos(7)));
        assert_eq!(said("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for wrong in ["", "S", "1", "-1S", "1.5S", "1s", "123456789S", "1 S"] {
            assert_eq!(said(wrong), None, "{wrong:?}");
        }
    }
}
