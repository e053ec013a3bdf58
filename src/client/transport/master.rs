//! Finds the master for calls outside of a session.

use std::sync::Arc;

/// Maximum number of redirects from one server to another.
const MAX_REDIRECTS: usize = 4;

/// The outcome of a call to one server.
#[derive(Debug, PartialEq, Eq)]
pub enum MasterReply<T, E> {
    /// The server is the master.
    Answer(T),
    /// The server named the master.
    Elsewhere(Arc<str>),
    /// Another attempt, at this server or another, may succeed.
    NotNow(String),
    /// Every server would answer the same.
    Never(E),
}

/// Calls a server, and the masters that it and the next ones name. Returns the outcome and the server that gave it, which
/// is never a redirect.
pub async fn follow_redirects<T, E, F: Future<Output = MasterReply<T, E>>>(
    server: Arc<str>,
    call: impl Fn(Arc<str>) -> F,
) -> (Arc<str>, MasterReply<T, E>) {
    let mut at = server;
    for _ in 0..=MAX_REDIRECTS {
        match call(Arc::clone(&at)).await {
            MasterReply::Elsewhere(master) => at = master,
            reply => return (at, reply),
        }
    }
    let why = format!("no master found after {MAX_REDIRECTS} redirects, the last to {at}");
    (at, MasterReply::NotNow(why))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn redirects_are_followed_up_to_the_limit() {
        let calls = Cell::new(0);
        let after = |redirects: usize| {
            calls.set(0);
            let calls = &calls;
            follow_redirects("0".into(), move |at| {
                calls.set(calls.get() + 1);
                let reply: MasterReply<&str, ()> = match at.parse::<usize>().expect("a number") {
                    n if n < redirects => MasterReply::Elsewhere((n + 1).to_string().into()),
                    _ => MasterReply::Answer("granted"),
                };
                async move { reply }
            })
        };
        assert_eq!(after(0).await, ("0".into(), MasterReply::Answer("granted")));
        assert_eq!(after(MAX_REDIRECTS).await, ("4".into(), MasterReply::Answer("granted")));
        assert_eq!(calls.get(), 5);
        let (_, reply) = after(MAX_REDIRECTS + 1).await;
        assert!(matches!(&reply, MasterReply::NotNow(why) if why.contains("after 4 redirects")), "{reply:?}");
        assert_eq!(calls.get(), 5);
    }

    #[tokio::test]
    async fn failures_end_the_search_at_the_server_that_failed() {
        let failing = |at: Arc<str>| async move {
            match &*at {
                "a:1" => MasterReply::Elsewhere("b:1".into()),
                _ => MasterReply::<(), _>::Never("denied"),
            }
        };
        assert_eq!(follow_redirects("a:1".into(), failing).await, ("b:1".into(), MasterReply::Never("denied")));
        let down = |_| async { MasterReply::<(), ()>::NotNow("down".into()) };
        assert_eq!(follow_redirects("a:1".into(), down).await, ("a:1".into(), MasterReply::NotNow("down".into())));
    }
}
