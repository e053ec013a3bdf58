//! What goes into an uplink and what comes out of it.

use std::sync::Arc;

use leaseway_client::session::{Given, Outgoing};
use leaseway_core::{Condensed, Millis, Settings, Supply, Terms};

use super::aggregate::Aggregate;

/// Something that has happened.
#[derive(Debug, Clone, PartialEq)]
pub enum UplinkInput {
    /// A resource of this node says so.
    Notice(Notice),
    /// The parent hints that asking for these now would change something; `None` stands for all.
    Hinted(Option<Vec<String>>),
    /// A request has ended.
    Ended { number: u64, reply: ParentReply },
    /// What the resources say that [`UplinkEffects::condense`] named, at this moment. Those that are left out say
    /// nothing.
    Condensed(Vec<(Arc<str>, Condensed)>),
}

/// What a resource tells the uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// It has come to life, perhaps again, or the parent should hear of it before it is asked anyway.
    Asks(Arc<str>),
    /// It is needed no more: what was lent is given back.
    Retired(Arc<str>),
}

/// What has become of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum ParentReply {
    /// The parent's master has answered.
    Granted(Vec<Granted>),
    /// Another server has to be asked, if it is known which.
    Elsewhere(Option<String>),
    Failed,
}

/// One resource of a parent's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Granted {
    pub given: Given,
    /// What the parent divided by, for each priority; empty if it does not say.
    pub terms: Vec<(i16, Terms)>,
    /// How the resource is run at the parent.
    pub settings: Settings,
}

/// What is to be done after a run, in this order.
#[derive(Debug)]
pub struct UplinkEffects {
    /// To be given to the resources, before any of them is condensed.
    pub lent: Vec<Lent>,
    /// Something is to be sent: run again with what these say ([`UplinkInput::Condensed`]). If there are none,
    /// something is given back.
    pub condense: Option<Vec<Arc<str>>>,
    pub send: Option<Outgoing<Aggregate>>,
    /// The request whose answer still counts.
    pub under_way: Option<u64>,
    /// Run again then, at the latest.
    pub wake: Option<Millis>,
    /// The server that is asked at present.
    pub parent: Arc<str>,
    /// Requests that have failed since one was answered.
    pub failures: u32,
    /// How many resources are wanted.
    pub resources: usize,
}

/// What the parent lends a resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Lent {
    pub id: Arc<str>,
    /// How much, and until when.
    pub supply: Supply,
    /// How the resource is run here.
    pub settings: Settings,
}
