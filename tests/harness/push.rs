//! A listener that follows hints.

use leaseway_proto::push::{Hint, WatchRequest, push_client::PushClient};
use tonic::{Status, Streaming, transport::Channel};

use super::{
    doorman::{Client, capacity},
    server::Server,
    wait::block_on,
};

/// An open stream of hints.
pub(crate) struct Watching(Streaming<Hint>);

/// Opens a stream of hints.
pub(crate) fn try_watch(server: &Server, client: Option<&str>, node: Option<&str>) -> Result<Watching, Status> {
    try_watch_over(server.channel(), client, node)
}

/// The same over a connection that there is already.
pub(crate) fn try_watch_over(channel: Channel, client: Option<&str>, node: Option<&str>) -> Result<Watching, Status> {
    let request = WatchRequest { client_id: client.map(Into::into), server_id: node.map(Into::into) };
    Ok(Watching(block_on(PushClient::new(channel).watch(request))?.into_inner()))
}

/// A client's stream that is established: its first hint has come.
pub(crate) fn watch(server: &Server, client: &str) -> Watching {
    let mut watching = try_watch(server, Some(client), None).unwrap();
    assert_eq!(watching.next().unwrap(), Some(Hint::default()), "the first is empty");
    watching
}

impl Watching {
    /// What it is told next; `None` when the stream has ended without an error.
    pub(crate) fn next(&mut self) -> Result<Option<Hint>, Status> {
        block_on(self.0.message())
    }

    /// The next hint names this resource and no other.
    #[track_caller]
    pub(crate) fn is_told_of(&mut self, resource: &str) {
        let hint = self.next().unwrap().expect("the stream goes on");
        assert_eq!((hint.resource_id, hint.everything), (vec![resource.to_owned()], false));
    }

    /// Asks each time it is told to, until it is given so much. A hint may be repeated before it is followed, on a
    /// machine that is busy.
    #[track_caller]
    pub(crate) fn followed_by(&mut self, client: &mut Client, resource: &str, wants: f64, until: f64) {
        loop {
            self.is_told_of(resource);
            let response = client.try_ask(resource, wants).unwrap();
            if response.is_some_and(|response| capacity(response.gets) == until) {
                return;
            }
        }
    }
}
