//! Explanations as sentences. All interfaces show the same ones.

use super::{Block, DueRule, Explanation, GroupBound, GroupLimit, Others};
use crate::{
    allocation::division::Terms,
    pool::PoolStanding,
    types::{Amount, HolderKind, Millis, Sum, escaped, readable},
};

impl Explanation {
    /// In this order: what the holder has and is due, the reason for its due, what keeps it from having its due, what
    /// happens next, and how it could get more.
    pub fn sentences(&self) -> Vec<String> {
        let because = match &self.group {
            Some(limit) => format!("{}, and {}", short(limit), self.because()),
            None => self.because(),
        };
        let mut said = vec![self.detail(), format!("{} is due {}: {because}.", self.name(), self.due())];
        said.extend(self.group.iter().map(binding));
        said.extend(self.overridden_groups.iter().map(|overridden| overridden.sentence(self.at)));
        said.extend(self.client.iter().map(|rule| format!("A client rule applies: {}.", escaped(&rule.in_words()))));
        said.extend(self.overridden.iter().map(|overridden| overridden.sentence(self.at)));
        said.extend(self.blocks.iter().map(|block| self.blocked(block)));
        said.push(self.next());
        said.extend(self.advice());
        said
    }

    fn name(&self) -> String {
        escaped(&self.holder.id).to_string()
    }

    fn due(&self) -> String {
        amount(self.holder.due)
    }

    fn in_time(&self, until: Millis) -> String {
        format!("{} s", until.since(self.at).0.div_ceil(1000))
    }

    fn detail(&self) -> String {
        let holder = &self.holder;
        let clients = match (holder.kind, holder.subclients) {
            (HolderKind::Client, _) => String::new(),
            (HolderKind::Node, 1) => ", a node with one client,".to_owned(),
            // A client of a node counts as its weight.
            (HolderKind::Node, clients) => format!(", a node whose clients count as {clients},"),
        };
        let has = match self.holder.end.since(self.at).0 {
            0 => "nothing".to_owned(),
            _ if holder.granted == Amount::ZERO => "nothing".to_owned(),
            _ if matches!(self.rule, DueRule::Budget(_)) => {
                format!("up to {} in all, until the period ends", amount(holder.granted))
            }
            left => format!("{}, which counts for another {} s", amount(holder.granted), left.div_ceil(1000)),
        };
        let free = match self.rule {
            DueRule::Unlimited => "There is no limit.".to_owned(),
            _ => format!("{} of {} is free.", sum(self.free.max(Sum::ZERO)), amount(self.capacity)),
        };
        format!(
            "{}{clients} wants {}, is due {} and has {has}. {free}",
            self.name(),
            amount(holder.wants),
            amount(holder.due),
        )
    }

    fn because(&self) -> String {
        let each =
            if self.holder.subclients > 1 || self.holder.kind == HolderKind::Node { " for each client" } else { "" };
        match &self.rule {
            DueRule::Wants => "all that it wants".to_owned(),
            DueRule::Unlimited => "all that it wants, because this resource is not shared".to_owned(),
            DueRule::Level(level) => {
                format!("every client that wants more than {level} is due {level}{each}", level = readable(*level))
            }
            DueRule::Share { equal, top_up } if *top_up > 0.0 => {
                let part = readable(top_up * 100.0);
                format!("an equal share of {}{each}, and {part} % of what it wants beyond that", readable(*equal))
            }
            DueRule::Share { equal, .. } => format!("an equal share of {}{each}", readable(*equal)),
            DueRule::Each(most) => format!("no client is due more than {}", amount(*most)),
            DueRule::Max(max) => format!("a client rule limits it to {}", amount(*max)),
            DueRule::Min(min) => {
                format!("a client rule guarantees it {}, more than its share", amount(*min))
            }
            DueRule::Minimums(_) if self.holder.due == Amount::ZERO => {
                "the minimums of other clients use up the capacity".to_owned()
            }
            DueRule::Minimums(level) => format!(
                "the sum of all minimums exceeds the capacity, so each minimum counts for at most {}{each}",
                readable(*level)
            ),
            DueRule::Band { band, above } => format!(
                "clients of a priority above {band} go first, and want {}, which uses up the capacity",
                sum(*above)
            ),
            DueRule::Units(until) => {
                format!("only whole units are given; left-over units move to other holders in {}", self.in_time(*until))
            }
            DueRule::Pool(state) => {
                let why = state.reason.map(|cause| format!(": {}", cause.name())).unwrap_or_default();
                match state.standing {
                    PoolStanding::Priority => format!("this is its assignment{why}"),
                    PoolStanding::Free => format!("this is what a client without an assignment gets{why}"),
                    PoolStanding::Waiting => format!("it waits for a place in the pool{why}"),
                    PoolStanding::Revoking => format!("it loses its place in the pool{why}"),
                }
            }
            DueRule::Budget(budget) => {
                let slice = match budget.pace {
                    Some(pace) => format!("its share of the pace, {}/s", readable(pace)),
                    None => "a slice of what is left".to_owned(),
                };
                let parts = [budget.spent, budget.reserved, budget.left].map(amount);
                let [spent, reserved, left] = parts;
                format!(
                    "what it has spent, and {slice}: of the amount, {spent} are spent, {reserved} are reserved for \
                     live holders and {left} are left"
                )
            }
            DueRule::Groups(1) => "its part of one group of clients".to_owned(),
            DueRule::Groups(groups) => format!("the sum of its parts of {groups} groups of clients"),
            DueRule::LoanEnded => "the lease from the parent has ended and was not renewed".to_owned(),
            DueRule::NothingLent => "the parent has lent nothing to this node".to_owned(),
        }
    }

    fn blocked(&self, block: &Block) -> String {
        match block {
            Block::Asks if self.holder.granted > self.holder.due => {
                "It has more than it is due: its next request is answered with less.".to_owned()
            }
            Block::Asks => "Nothing stands in its way: its next request is answered with its due.".to_owned(),
            Block::AwaitsSupply => "This node has no capacity yet, because its parent has not answered.".to_owned(),
            Block::Unclaimed(left, until) => format!(
                "Earlier masters leased {} to holders that have not claimed it yet: this amount counts as held for {} \
                 at most.",
                amount(*left),
                self.in_time(*until)
            ),
            Block::Learning(until) => format!(
                "This master does not know earlier leases: for another {}, it only restores the leases that holders \
                 report.",
                self.in_time(*until)
            ),
            Block::Others(others) => self.others(others),
            Block::Over(over) => format!(
                "The capacity was cut, and holders still have {} more than it: no lease grows until that excess has \
                 ended.",
                sum(*over)
            ),
            Block::Unshown(until) => format!(
                "It sends no lease token, so its lease may be from an earlier master: it gets no more than it reports \
                 until a request shows a lease of this master, for {} at most.",
                self.in_time(*until)
            ),
            Block::LeftOut(until) => format!(
                "It may have a lease of an earlier master that its requests do not show: to let it keep that lease, \
                 its requests stay unanswered for {} at most.",
                self.in_time(*until)
            ),
            Block::Unconfirmed(held, until) => format!(
                "{} is held for it: an older lease counts until a request shows that it knows the newer one, for {} at \
                 most.",
                amount(*held),
                self.in_time(*until)
            ),
        }
    }

    fn others(&self, others: &Others) -> String {
        let named = others.largest.iter().map(|other| {
            let late = other.asks.map_or(Millis(0), |asks| self.at.since(asks));
            let silence = match late.0 / 1000 {
                // A request may be on its way.
                0..2 => String::new(),
                late => format!("; its request is {late} s late, so it may be gone"),
            };
            let (id, beyond, until) = (escaped(&other.id), amount(other.beyond), self.in_time(other.until));
            format!("{id} {beyond} (for {until} at most{silence})")
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let more = others.count.saturating_sub(others.largest.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let partly = if others.incomplete { " among the holders checked" } else { "" };
        let count = if others.count == 1 { "Another holder has" } else { "Other holders have" };
        format!(
            "{count} {} beyond what is due{partly}: {named}{more}. That is free when they ask again and confirm their \
             smaller leases, or when their older leases end.",
            sum(others.beyond)
        )
    }

    fn next(&self) -> String {
        let asks = match self.asks {
            Some(at) if at > self.at => format!("It should ask again in {}", self.in_time(at)),
            Some(_) => "It may ask again now".to_owned(),
            None => "It has not asked this master yet".to_owned(),
        };
        match self.latest {
            Some(latest) if self.holder.granted != self.holder.due => format!(
                "{asks}, and can have its due in {} at the latest, if neither wants nor the master change.",
                self.in_time(latest)
            ),
            _ => format!("{asks}."),
        }
    }

    /// How it could get more.
    fn advice(&self) -> Option<String> {
        let could = match &self.rule {
            _ if self.holder.due >= self.holder.wants && self.holder.granted >= self.holder.due => return None,
            DueRule::Band { .. } => {
                "It would go first with a higher priority, if the policy and the template allow one."
            }
            DueRule::Level(_) | DueRule::Share { .. } => match &self.group {
                Some(limit) => return Some(group_advice(limit)),
                None => "It would get more with a larger capacity, fewer competing clients, or a larger weight.",
            },
            DueRule::Each(_) => {
                "It would get more with a larger capacity in the template, which applies to each client."
            }
            DueRule::Pool(state) if state.standing == PoolStanding::Waiting => {
                "An assignment (`leaseway pool set`) would give it a place before others."
            }
            DueRule::Groups(_) => "Explain a client at this node to see which level limits its group.",
            DueRule::NothingLent => "Explain this node at the parent to see why.",
            DueRule::LoanEnded => {
                "Check the parent: `leaseway status` of this node says when the parent last answered."
            }
            _ => return None,
        };
        Some(could.to_owned())
    }
}

fn group_advice(limit: &GroupLimit) -> String {
    let group = named(&limit.binding);
    match limit.because {
        GroupBound::Maximum(_) => format!("It would get more with a larger maximum of {group}."),
        GroupBound::Lease => "It would get more with a larger lease of this node.".to_owned(),
        GroupBound::Unreported => "The group gets its share once the parent has answered.".to_owned(),
        _ => format!("It would get more with a larger capacity, or a larger weight or minimum of {group}."),
    }
}

fn named(group: &str) -> String {
    format!("the group {}", escaped(group))
}

/// The group of the client is due less than its clients want.
fn short(limit: &GroupLimit) -> String {
    let (group, share, wants) = (escaped(&limit.group), amount(limit.share), sum(limit.wants));
    let said = format!("its group {group} is due {share} of the {wants} that its clients want");
    match limit.here {
        Some((share, wants)) => format!("{said} in the whole tree, and {} of {} here", amount(share), sum(wants)),
        None => said,
    }
}

/// The level that binds.
fn binding(limit: &GroupLimit) -> String {
    let because = match limit.because {
        GroupBound::Lease => "the lease of this node covers no more of what its groups are due".to_owned(),
        GroupBound::Unreported => "this node's parent does not know yet that the group has clients here".to_owned(),
        GroupBound::Maximum(most) => format!("its maximum is {}", amount(most)),
        GroupBound::Minimum(least) => format!("its minimum is {}, more than its share", amount(least)),
        GroupBound::Share(Terms::Minimums(_)) => "the minimums of all groups exceed what the groups share".to_owned(),
        GroupBound::Share(Terms::Share { equal, top_up }) => format!(
            "a share of {} for its weight of {}, and {} % of what it wants beyond that",
            readable(equal * f64::from(limit.binding_weight)),
            limit.binding_weight,
            readable(top_up * 100.0)
        ),
        GroupBound::Share(_) => {
            format!("no group of weight {} is due more than {}", limit.binding_weight, amount(limit.binding_share))
        }
    };
    let (group, share, wants) = (named(&limit.binding), amount(limit.binding_share), sum(limit.binding_wants));
    format!("The limiting level is {group}, which is due {share} of {wants}: {because}.")
}

fn amount(amount: Amount) -> String {
    readable(amount.get())
}

fn sum(sum: Sum) -> String {
    readable(sum.get())
}
