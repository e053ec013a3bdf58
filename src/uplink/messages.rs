//! The inputs and effects of an uplink.

use std::sync::Arc;

use leaseway_client::session::{GrantedLease, Outgoing};
use leaseway_core::{
    allocation::{division::Terms, groups::GroupSupply},
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
    RequestEnded {
        number: u64,
        reply: ParentReply,
    },
    /// The summaries of the resources in [`UplinkEffects::summarize`], except those that did not answer.
    Summaries(Vec<(Arc<str>, DemandSummary)>),
}

/// A message from a resource to the uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The resource is new, or its demand has changed so much that the parent should know before the next refresh.
    AskSoon(Arc<str>),
    /// The resource is no longer used: release its lease.
    Retired(Arc<str>),
}

/// The end of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum ParentReply {
    /// The parent's master has answered.
    Granted(Vec<Granted>),
    /// The server is not the master. Contains the address of the master, if the server knows it.
    Redirected(Option<String>),
    Failed,
}

/// One resource of a parent's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Granted {
    pub given: GrantedLease,
    /// The terms of the parent for each priority; empty if it sends none.
    pub terms: Vec<(i16, Terms)>,
    /// This node's part of each group; empty if the parent sends none.
    pub groups: Vec<GroupSupply>,
    /// The settings of the resource at the parent.
    pub settings: Settings,
}

/// Actions after a run, in this order.
#[derive(Debug)]
pub struct UplinkEffects {
    /// Deliver these to the resources before summarizing any of them.
    pub supplies: Vec<NewSupply>,
    /// A request is due: run again with the summaries of these resources ([`UplinkInput::Summaries`]). The list is
    /// empty if the request only releases leases.
    pub summarize: Option<Vec<Arc<str>>>,
    pub send: Option<Outgoing<Aggregate>>,
    /// The number of the pending request.
    pub in_flight: Option<u64>,
    /// The deadline of the next run.
    pub wake: Option<Millis>,
    /// The server that receives requests.
    pub parent: Arc<str>,
    /// The number of failed requests since the last answer.
    pub failures: u32,
    /// The number of resources.
    pub resources: usize,
}

/// A new supply for a resource.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSupply {
    pub id: Arc<str>,
    pub supply: Supply,
    /// The settings of the resource at this node.
    pub settings: Settings,
}
