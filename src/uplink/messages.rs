//! The inputs and effects of an uplink.

use std::sync::Arc;

use leaseway_client::session::{Given, Outgoing};
use leaseway_core::{
    allocation::division::Terms,
    policy::settings::Settings,
    resource::supply::{DemandSummary, Supply},
    types::Millis,
};

use super::aggregate::Aggregate;

#[derive(Debug, Clone, PartialEq)]
pub enum UplinkInput {
    /// A notice from a resource of this node.
    Notice(Notice),
    /// Hints from the parent for these resources; `None` stands for all.
    Hinted(Option<Vec<String>>),
    /// A request has ended.
    Ended { number: u64, reply: ParentReply },
    /// The summaries of the resources that [`UplinkEffects::summarize`] named. A resource that did not answer is left
    /// out.
    Summaries(Vec<(Arc<str>, DemandSummary)>),
}

/// A message from a resource to the uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// It was created, perhaps again, or the parent should be told before the next refresh.
    Asks(Arc<str>),
    /// It is not needed any more: give back what was lent.
    Retired(Arc<str>),
}

/// The end of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum ParentReply {
    /// The parent's master has answered.
    Granted(Vec<Granted>),
    /// Another server must be asked; which one, if that is known.
    Elsewhere(Option<String>),
    Failed,
}

/// One resource of a parent's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Granted {
    pub given: Given,
    /// The terms of the parent for each priority; empty if it sends none.
    pub terms: Vec<(i16, Terms)>,
    /// The settings of the resource at the parent.
    pub settings: Settings,
}

/// Actions after a run, in this order.
#[derive(Debug)]
pub struct UplinkEffects {
    /// Supplies for the resources, to be delivered before any of them is summarized.
    pub lent: Vec<Lent>,
    /// Something is to be sent: run again with the summaries of these resources ([`UplinkInput::Summaries`]). If it is
    /// empty, something is given back.
    pub summarize: Option<Vec<Arc<str>>>,
    pub send: Option<Outgoing<Aggregate>>,
    /// The request whose answer still counts.
    pub under_way: Option<u64>,
    /// Run again then, at the latest.
    pub wake: Option<Millis>,
    /// The server that is asked.
    pub parent: Arc<str>,
    /// Requests that have failed since one was answered.
    pub failures: u32,
    /// The number of resources.
    pub resources: usize,
}

/// A supply for a resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Lent {
    pub id: Arc<str>,
    /// How much, and until when.
    pub supply: Supply,
    /// The settings of the resource here.
    pub settings: Settings,
}
