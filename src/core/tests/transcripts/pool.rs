//! Pools in transcripts.

use std::fmt::Write as _;

use goldenscript::ArgumentConsumer;

use super::{
    Failure, Transcript,
    render::{amount, duration, number, time},
};
use crate::{
    policy::overrides::Load,
    pool::{Assigned, PoolCursor, PoolEvent, PoolFields, PoolFilter, PoolReport, PoolStanding, PoolState, Usage},
    resource::LoadReport,
    types::HolderKind,
};

/// The pool fields of a request.
pub(super) fn pool_fields(args: &mut ArgumentConsumer<'_>) -> Result<Option<Box<PoolFields>>, Failure> {
    let key = args.take_key("key").map(Into::into);
    let cost = args.take_key("cost").map(amount).transpose()?.unwrap_or_default();
    let uses: Option<f64> = args.take_key("uses").map(str::parse).transpose()?;
    let usage = uses.map(|recharging| Usage { recharging, request_cost: cost, interval: None });
    let pool_fields = PoolFields { key, usage };
    Ok((pool_fields != PoolFields::default()).then(|| Box::new(pool_fields)))
}

/// The pool fields of an answer.
pub(super) fn told(state: &PoolState) -> String {
    match (state.standing, state.reason) {
        (PoolStanding::Priority, _) => format!(", priority: {} assigned", number(state.assigned.get())),
        (standing, None) => format!(", {}", standing.name()),
        (standing, Some(reason)) => format!(", {}: {}", standing.name(), reason.name()),
    }
}

fn assigned(text: &str) -> Result<Option<Assigned>, Failure> {
    Ok(match (text, text.strip_suffix("pct")) {
        ("none", _) => None,
        (_, Some(per_cent)) => Some(Assigned::Share(per_cent.parse::<f64>()? / 100.0)),
        (_, None) => Some(Assigned::Capacity(amount(text)?)),
    })
}

fn event(event: &PoolEvent) -> String {
    let mut text = format!("event {}: {}", event.seq, event.kind.name());
    if let Some(client) = &event.client {
        let class = if client.is_priority { "priority" } else { "free" };
        text += &format!(
            " {} ({class}) has {}, cost {} + {}",
            client.id,
            number(client.capacity.get()),
            number(client.time_cost),
            number(client.request_cost)
        );
    }
    if let Some(cause) = event.cause {
        text += &format!(": {}", cause.name());
    }
    if let Some(deadline) = event.deadline {
        text += &format!(", deadline at {}", time(deadline));
    }
    let (total, all) = (number(event.total.get()), number(event.connected.get()));
    text + &format!(" [total {total}, connected {all}, priority {}]\n", number(event.priority_connected.get()))
}

impl Transcript {
    pub(super) fn assign(&mut self, mut args: ArgumentConsumer<'_>) -> Result<String, Failure> {
        let id = args.next_pos().ok_or("who?")?.into();
        let assigned = assigned(args.next_pos().ok_or("how much?")?)?;
        let now = self.now;
        Ok(match self.resource()?.assign(now, HolderKind::Client, &id, assigned) {
            Ok(_) => String::new(),
            Err(error) => format!("refused: {error}\n"),
        })
    }

    pub(super) fn alarm(&mut self, mut args: ArgumentConsumer<'_>) -> Result<(), Failure> {
        let id = args.next_pos().ok_or("who?")?.into();
        let mark = args.next_pos().ok_or("at what cost?")?.parse()?;
        let now = self.now;
        Ok(self.resource()?.set_alarm(now, HolderKind::Client, &id, Some(mark))?)
    }

    pub(super) fn facts(&mut self, mut args: ArgumentConsumer<'_>) -> Result<(), Failure> {
        let id = args.next_pos().ok_or("who?")?.into();
        let assigned = assigned(args.next_pos().ok_or("how much?")?)?.ok_or("something")?;
        self.resource()?.remember_assignments([(HolderKind::Client, id, assigned)]);
        Ok(())
    }

    pub(super) fn load(&mut self, mut args: ArgumentConsumer<'_>) -> Result<String, Failure> {
        let text = args.next_pos().ok_or("how much?")?;
        let load = match text.strip_suffix("pct") {
            Some(per_cent) => Load::Factor(per_cent.parse::<f64>()? / 100.0),
            None => Load::Capacity(amount(text)?),
        };
        let now = self.now;
        let until = args.next_pos().map(duration).transpose()?.map(|span| now.plus(span));
        Ok(match self.resource()?.report_load(now, LoadReport { load, until }) {
            Ok(capacity) => format!("the capacity is {}\n", number(capacity.get())),
            Err(error) => format!("refused: {error}\n"),
        })
    }

    pub(super) fn pool(&mut self) -> Result<String, Failure> {
        let PoolReport {
            min_capacity,
            free_capacity,
            total,
            base,
            max,
            connected,
            priority_connected,
            priority_assigned,
            used,
            overloads,
            deadline,
            free_waiting,
            priority_waiting,
            revoking,
            ..
        } = self.resource()?.pool().ok_or("no pool")?;
        let mut output = format!(
            "min {}, free {}, total {}, base {}, max {}\nconnected {}, priority connected {}, priority assigned {}\nused {}, {overloads} overloads, waiting {free_waiting} free and {priority_waiting} priority, revoking {revoking}",
            number(min_capacity.get()),
            number(free_capacity.get()),
            number(total.get()),
            number(base.get()),
            number(max.get()),
            number(connected.get()),
            number(priority_connected.get()),
            number(priority_assigned.get()),
            number(used.get()),
        );
        if let Some(deadline) = deadline {
            write!(output, ", deadline at {}", time(deadline))?;
        }
        Ok(output + "\n")
    }

    pub(super) fn events(&mut self) -> Result<String, Failure> {
        Ok(self.resource()?.take_pool_events().iter().map(event).collect())
    }

    pub(super) fn list(&mut self, mut args: ArgumentConsumer<'_>) -> Result<String, Failure> {
        let filter = match args.next_pos().ok_or("which members?")? {
            "known" => PoolFilter::Known,
            "connected" => PoolFilter::Connected,
            "assigned" => PoolFilter::Assigned,
            "priority-connected" => PoolFilter::PriorityConnected,
            other => return Err(format!("no filter `{other}`").into()),
        };
        let limit = args.take_key("limit").map_or(Ok(usize::MAX), str::parse)?;
        let (mut output, mut from): (String, Option<PoolCursor>) = (String::new(), None);
        loop {
            let page = self.resource()?.pool_members(filter, from.as_ref(), limit);
            for member in &page.members {
                let assigned = match member.assigned {
                    Some(Assigned::Capacity(capacity)) => format!(", {} assigned", number(capacity.get())),
                    Some(Assigned::Share(share)) => format!(", {}% assigned", number(share * 100.0)),
                    None => format!(", balance {}", number(member.balance)),
                };
                writeln!(
                    output,
                    "{} has {}{assigned}, {}",
                    member.id,
                    number(member.capacity.get()),
                    member.standing.name()
                )?;
            }
            if page.next.is_none() {
                return Ok(output);
            }
            output += "next page\n";
            from = page.next;
        }
    }
}
