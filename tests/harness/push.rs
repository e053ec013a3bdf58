//! A client that listens for hints to refresh.

use leaseway_proto::push::{Hint, WatchRequest, push_client::PushClient};
use tonic::{Status, Streaming, transport::Channel};

use super::{
    doorman::{Client, capacity},
    server::Server,
    wait::block_on,
};

pub(crate) struct Watching(Streaming<Hint>);

pub(crate) fn try_watch(server: &Server, client: Option<&str>, node: Option<&str>) -> Result<Watching, Status> {
    try_watch_over(server.channel(), client, node)
}

/// Uses an existing connection.
pub(crate) fn try_watch_over(channel: Channel, client: Option<&str>, node: Option<&str>) -> Result<Watching, Status> {
    let request = WatchRequest { client_id: client.map(Into::into), server_id: node.map(Into::into) };
    Ok(Watching(block_on(PushClient::new(channel).watch(request))?.into_inner()))
}

/// Opens a stream, and waits for its first hint.
pub(crate) fn watch(server: &Server, client: &str) -> Watching {
    let mut watching = try_watch(server, Some(client), None).unwrap();
    assert_eq!(watching.next().unwrap(), Some(Hint::default()), "the first hint is empty");
    watching
}

impl Watching {
    /// The next hint. None if the stream has ended without an error.
    pub(crate) fn next(&mut self) -> Result<Option<Hint>, Status> {
        block_on(self.0.message())
    }

    /// Fails unless the next hint names this resource only.
    #[track_caller]
    pub(crate) fn is_told_of(&mut self, resource: &str) {
        let hint = self.next().unwrap().expect("the stream is open");
        assert_eq!((hint.resource_id, hint.everything), (vec![resource.to_owned()], false));
    }

    /// Refreshes after each hint until it holds this capacity. A busy server may repeat hints.
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
