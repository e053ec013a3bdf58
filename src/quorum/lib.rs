//! stub
#![allow(missing_docs)]
use leaseway_core::{Changes, Millis, Promises, Term};
use std::{net::SocketAddr, path::PathBuf, sync::Arc};
use tokio::sync::watch;
pub struct Settings {
    pub name: String,
    pub data: PathBuf,
    pub clock: Arc<dyn Fn() -> Millis + Send + Sync>,
    pub listen: Option<SocketAddr>,
    pub services: Services,
    pub peers: Vec<(String, String)>,
    pub bootstrap: bool,
    pub first_configuration: Option<Configuration>,
    pub secret: Option<Secret>,
    pub timing: Timing,
}
impl Settings {
    pub fn new(_n: &str, _d: PathBuf, _c: Arc<dyn Fn() -> Millis + Send + Sync>) -> Settings {
        todo!()
    }
}
#[derive(Clone)]
pub struct Secret;
impl Secret {
    pub fn new(_: &str) -> Result<Secret, SecretError> {
        todo!()
    }
}
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct SecretError;
#[derive(Debug, Clone, Copy)]
pub struct Timing;
impl Timing {
    pub const ONE_SITE: Timing = Timing;
    pub const SEVERAL_SITES: Timing = Timing;
    pub fn new(_: u64, _: u64, _: u64) -> Result<Timing, TimingError> {
        todo!()
    }
}
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct TimingError;
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct StartError;
#[derive(Debug, thiserror::Error)]
pub enum ProposeError {
    #[error("x")]
    Deposed,
    #[error("x")]
    Uncertain,
    #[error("x")]
    TooLarge {},
}
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("x")]
    NotMaster,
}
#[derive(Clone)]
pub struct Quorum;
pub async fn start(_s: Settings) -> Result<Quorum, StartError> {
    todo!()
}
impl Quorum {
    pub fn mastership(&self) -> watch::Receiver<Mastership> {
        todo!()
    }
    pub async fn propose(&self, _r: &Reign, _f: Vec<Fact>) -> Result<(), ProposeError> {
        todo!()
    }
    pub fn read<R>(&self, _f: impl FnOnce(&Facts) -> R) -> R {
        todo!()
    }
    pub fn peers(&self) -> Vec<PeerReport> {
        todo!()
    }
    pub async fn add(&self, _n: &str, _a: &str) -> Result<(), ChangeError> {
        todo!()
    }
    pub async fn remove(&self, _n: &str) -> Result<(), ChangeError> {
        todo!()
    }
    pub fn name(&self) -> &str {
        todo!()
    }
    pub fn cluster(&self) -> String {
        todo!()
    }
    pub fn listening(&self) -> Option<SocketAddr> {
        todo!()
    }
    pub fn origin(&self) -> Origin {
        todo!()
    }
    pub async fn shutdown(&self) {}
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Bootstrapped,
    Resumed,
    Empty,
}
#[derive(Clone, Debug)]
pub enum Mastership {
    Master(Reign),
    Follower { of: Option<PeerAddress> },
    Unknown,
}
#[derive(Clone, Debug)]
pub struct PeerAddress {
    pub name: String,
    pub services: Services,
}
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services {
    pub grpc: String,
    pub admin: String,
}
#[derive(Clone, Debug)]
pub struct Reign;
impl Reign {
    pub fn term(&self) -> u64 {
        0
    }
    pub fn since(&self) -> Millis {
        Millis(0)
    }
    pub fn holds(&self, _: Millis) -> bool {
        true
    }
}
#[derive(Clone, Debug)]
pub struct Configuration {
    pub version: u64,
    pub text: Arc<str>,
    pub source: Arc<str>,
    pub at_unix: i64,
    pub by: Arc<str>,
}
#[derive(Clone, Debug)]
pub enum Fact {
    Configuration(Configuration),
    Promises { resource: Arc<str>, changes: Changes },
    ForgetPromises { resource: Arc<str>, term: Term },
}
pub struct Facts;
impl Facts {
    pub fn configurations(&self) -> std::slice::Iter<'_, Configuration> {
        todo!()
    }
    pub fn configuration(&self) -> Option<&Configuration> {
        todo!()
    }
    pub fn promises(&self, _: &str) -> Option<&Promises> {
        todo!()
    }
}
pub struct PeerReport {
    pub name: String,
    pub address: String,
    pub services: Services,
    pub role: Role,
    pub term: u64,
    pub position: u64,
    pub lag: u64,
    pub last_contact: Option<Millis>,
    pub this: bool,
}
pub enum Role {
    Master,
    Follower,
    Learner,
    Unreachable,
}
