//! Callers with bearer tokens, and the files that the server checks them against.

use std::{fs, path::PathBuf};

use leaseway_proto::{
    doorman::{
        DiscoveryRequest, DiscoveryResponse, GetCapacityRequest, GetCapacityResponse, GetServerCapacityRequest,
        GetServerCapacityResponse, Lease, ReleaseCapacityRequest, ReleaseCapacityResponse, ResourceRequest,
        capacity_client::CapacityClient,
    },
    push::{Hint, WatchRequest, push_client::PushClient},
    status::{GetStatusRequest, GetStatusResponse, status_client::StatusClient},
};
use tempfile::TempDir;
use tonic::{Request, Status, Streaming, transport::Channel};

use super::{
    doorman::{entry, request},
    process::leaseway,
    wait::block_on,
};

/// A file of the server, and a token file for each identity.
pub(crate) struct TokenFiles {
    directory: TempDir,
}

impl TokenFiles {
    pub(crate) fn of(identities: &[&str]) -> TokenFiles {
        let files = TokenFiles { directory: tempfile::tempdir().unwrap() };
        fs::write(files.path("tokens"), "").unwrap();
        identities.iter().for_each(|identity| files.add(identity));
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The file for `--tokens`.
    pub(crate) fn server(&self) -> String {
        self.path("tokens").display().to_string()
    }

    /// The token file of an identity.
    pub(crate) fn of_identity(&self, identity: &str) -> String {
        self.path(&identity.replace('/', "_")).display().to_string()
    }

    pub(crate) fn token(&self, identity: &str) -> String {
        fs::read_to_string(self.of_identity(identity)).unwrap().trim().to_owned()
    }

    /// Makes a token with `leaseway token new`.
    pub(crate) fn add(&self, identity: &str) {
        let said = leaseway(&["token", "new", identity, "--out", &self.of_identity(identity)]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let before = fs::read_to_string(self.path("tokens")).unwrap();
        self.write(&format!("{before}{}", said.stdout));
    }

    pub(crate) fn remove(&self, identity: &str) {
        fs::remove_file(self.of_identity(identity)).unwrap();
        let before = fs::read_to_string(self.path("tokens")).unwrap();
        let others = before.lines().filter(|line| !line.starts_with(&format!("{identity} ")));
        self.write(&others.map(|line| format!("{line}\n")).collect::<String>());
    }

    /// Replaces the file of the server.
    pub(crate) fn write(&self, text: &str) {
        let next = self.path("tokens.next");
        fs::write(&next, text).unwrap();
        fs::rename(next, self.path("tokens")).unwrap();
    }
}

#[derive(Clone)]
pub(crate) struct BearerClient {
    channel: Channel,
    token: Option<String>,
}

impl BearerClient {
    pub(crate) fn new(channel: Channel, token: Option<&str>) -> BearerClient {
        BearerClient { channel, token: token.map(str::to_owned) }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        request
    }

    fn capacity(&self) -> CapacityClient<Channel> {
        CapacityClient::new(self.channel.clone())
    }

    pub(crate) fn discovery(&self) -> Result<DiscoveryResponse, Status> {
        Ok(block_on(self.capacity().discovery(self.request(DiscoveryRequest {})))?.into_inner())
    }

    pub(crate) fn get(&self, message: GetCapacityRequest) -> Result<GetCapacityResponse, Status> {
        Ok(block_on(self.capacity().get_capacity(self.request(message)))?.into_inner())
    }

    pub(crate) fn get_server(&self, message: GetServerCapacityRequest) -> Result<GetServerCapacityResponse, Status> {
        Ok(block_on(self.capacity().get_server_capacity(self.request(message)))?.into_inner())
    }

    pub(crate) fn release(&self, id: &str, resource: &str, is_node: bool) -> Result<ReleaseCapacityResponse, Status> {
        let (client_id, resource_id) = (Some(id.to_owned()), vec![resource.to_owned()]);
        let message = ReleaseCapacityRequest {
            client_id,
            resource_id,
            token: Vec::new(),
            is_server: Some(is_node),
            ..Default::default()
        };
        Ok(block_on(self.capacity().release_capacity(self.request(message)))?.into_inner())
    }

    pub(crate) fn watch(&self, client: &str) -> Result<Streaming<Hint>, Status> {
        let message = WatchRequest { client_id: Some(client.into()), server_id: None };
        Ok(block_on(PushClient::new(self.channel.clone()).watch(self.request(message)))?.into_inner())
    }

    pub(crate) fn status(&self, resource: &str) -> Result<GetStatusResponse, Status> {
        let message = GetStatusRequest { resource_id: resource.into(), ..Default::default() };
        Ok(block_on(StatusClient::new(self.channel.clone()).get_status(self.request(message)))?.into_inner())
    }

    /// The lease for a client id, naming `has`.
    pub(crate) fn ask(
        &self,
        client: &str,
        resource: &str,
        wants: f64,
        has: Option<Lease>,
    ) -> Result<Option<Lease>, Status> {
        let entry = ResourceRequest { has, ..entry(resource, wants) };
        let answer = self.get(request(client, vec![entry]))?;
        Ok(answer.response.into_iter().next().and_then(|response| response.gets))
    }
}
