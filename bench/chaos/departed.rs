//! Many come and go, some without a word, and then masters die: how much stays reserved for those who are gone.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use leaseway_proto::status::{GetStatusRequest, Resource, status_client::StatusClient};
use serde::Serialize;
use tonic::transport::Endpoint;

use super::{
    crowd::PLENTY,
    hand::{Given, Hand, Wish},
    plan::Fault,
    round::{Field, Measured},
};
use crate::{error::Error, table};

/// How many waves of visitors there are, how far apart, and what part of the fleet's size each has.
const WAVES: usize = 5;
const APART: Duration = Duration::from_secs(1);
const PART: usize = 5;

const FAILOVERS: u32 = 3;

/// How long it is watched after the last failover, in lease lengths.
const LEASES: u32 = 2;

/// Too large a page is refused.
const PAGE: u32 = 1000;

/// What the master said at one moment.
#[derive(Debug, Serialize)]
pub(super) struct Sighting {
    at_s: f64,
    after: String,
    master: Option<String>,
    holders: u64,
    capacity: f64,
    /// What those who are still there have been granted, and what is held for them.
    granted_living: f64,
    held_living: f64,
    /// What is held for those who are gone.
    departed: f64,
    /// What peers keep as promised; missing where nothing is kept.
    promised: Option<f64>,
    /// Holders that this master knows from promises only.
    unheard: u64,
}

struct Visitor {
    wish: Wish,
    given: Given,
}

pub(super) fn run(
    field: &mut Field<'_>,
    rounds: &mut Vec<Measured>,
    sightings: &mut Vec<Sighting>,
    bar: &ProgressBar,
) -> Result<(), Error> {
    sightings.push(field.look_around("nobody has come", &[])?);
    let mut visitors = Vec::new();
    for wave in 0..WAVES {
        bar.set_message(format!("wave {} of {WAVES}", wave + 1));
        let arrived = field.welcome(wave)?;
        field.see_off(std::mem::replace(&mut visitors, arrived))?;
        sightings.push(field.look_around(&format!("wave {}", wave + 1), &visitors)?);
        field.interrupt.sleep_until(Instant::now() + APART, || {})?;
    }
    field.see_off(visitors)?;
    sightings.push(field.look_around("all visitors are gone", &[])?);
    for failover in 1..=FAILOVERS {
        bar.set_message(format!("failover {failover} of {FAILOVERS}"));
        for blow in Fault::Kill.blows(field.args.peers.get(), &mut field.random) {
            rounds.push(field.strike(failover, &blow)?);
        }
        sightings.push(field.look_around(&format!("failover {failover}"), &[])?);
    }
    let until = Instant::now() + field.args.lease() * LEASES;
    while Instant::now() < until {
        bar.set_message("waiting for leases to end");
        field.interrupt.sleep_until(Instant::now() + APART, || {})?;
        sightings.push(field.look_around("", &[])?);
    }
    Ok(())
}

impl Field<'_> {
    fn hand(&self, peer: usize) -> Hand {
        let _inside = self.runtime.enter();
        Hand::to(self.set.grpc()[peer])
    }

    /// A wave of visitors gets leases.
    fn welcome(&mut self, wave: usize) -> Result<Vec<Visitor>, Error> {
        let Some(master) = self.observer.master() else { return Ok(Vec::new()) };
        let (mut hand, length) = (self.hand(master), self.args.lease());
        let mut visitors = Vec::new();
        for number in 0..(self.args.clients.get() / PART).max(2) {
            self.interrupt.check()?;
            let client = format!("visitor:{wave}:{number}").into();
            let wish = Wish { client, resource: PLENTY.into(), wants: self.args.wants.mean() };
            let given = self.runtime.block_on(hand.ask(&wish, None, length));
            let Some(given) = given else { continue };
            self.entries.push(wish.entry(given.at, given.lease.capacity.unwrap_or(0.0)));
            visitors.push(Visitor { wish, given });
        }
        Ok(visitors)
    }

    /// They go, every other one without a word.
    fn see_off(&mut self, visitors: Vec<Visitor>) -> Result<(), Error> {
        let Some(master) = self.observer.master() else { return Ok(()) };
        let mut hand = self.hand(master);
        for (number, Visitor { wish, given }) in visitors.into_iter().enumerate() {
            self.interrupt.check()?;
            if number.is_multiple_of(2) {
                self.entries.push(wish.entry(given.ends, 0.0));
            } else {
                self.entries.push(wish.entry(Instant::now().min(given.ends), 0.0));
                self.runtime.block_on(hand.release(&wish, &given));
            }
        }
        Ok(())
    }

    fn look_around(&mut self, after: &str, visitors: &[Visitor]) -> Result<Sighting, Error> {
        self.set.check()?;
        let master = self.observer.master();
        let resource = match master {
            Some(master) => self.runtime.block_on(status(self.set.grpc()[master]))?,
            None => Resource::default(),
        };
        let visitors: HashSet<_> = visitors.iter().map(|visitor| &*visitor.wish.client).collect();
        let living = |id: &str| id.starts_with("client:") || visitors.contains(id);
        let living: Vec<_> = resource.holder.iter().filter(|holder| living(&holder.id)).collect();
        let held_living = living.iter().map(|holder| holder.held).sum();
        Ok(Sighting {
            at_s: self.started.elapsed().as_secs_f64(),
            after: after.to_owned(),
            master: master.map(|master| self.set.names(&[master]).concat()),
            holders: resource.holders,
            capacity: resource.capacity,
            granted_living: living.iter().map(|holder| holder.granted).sum(),
            held_living,
            departed: resource.held - held_living,
            promised: resource.promised,
            unheard: resource.unheard,
        })
    }
}

/// What a server says about the resource that visitors ask for, with all its holders.
async fn status(server: std::net::SocketAddr) -> Result<Resource, Error> {
    let endpoint = Endpoint::from_shared(format!("http://{server}")).expect("a socket address makes a URI");
    let mut client = StatusClient::new(endpoint.connect_lazy());
    let mut request = GetStatusRequest { resource_id: PLENTY.into(), page_size: PAGE, ..GetStatusRequest::default() };
    let mut all = Resource::default();
    loop {
        let answer = client.get_status(request.clone()).await;
        let answer = answer.map_err(|status| Error::Usage(format!("GetStatus: {}", status.message())))?.into_inner();
        let Some(page) = answer.resources.into_iter().next() else { return Ok(all) };
        let mut holders = std::mem::take(&mut all.holder);
        holders.extend(page.holder.iter().cloned());
        all = Resource { holder: holders, ..page };
        if answer.next_page_token.is_empty() {
            return Ok(all);
        }
        request.page_token = answer.next_page_token;
    }
}

pub(super) fn text(sightings: &[Sighting]) -> String {
    let row = |seen: &Sighting| {
        [
            seen.after.clone(),
            seen.master.clone().unwrap_or_else(|| "-".into()),
            format!("{:.1}", seen.at_s),
            seen.holders.to_string(),
            format!("{:.1}", seen.granted_living),
            format!("{:.1}", seen.held_living),
            format!("{:.1}", seen.departed),
            format!("{:.1}", seen.departed / seen.capacity * 100.0),
            seen.promised.map_or_else(|| "-".into(), |promised| format!("{promised:.1}")),
            seen.unheard.to_string(),
        ]
    };
    let rows: Vec<_> = sightings.iter().map(row).collect();
    let head = [
        "after",
        "master",
        "s",
        "holders",
        "living: granted",
        "living: held",
        "departed: held",
        "% of capacity",
        "promised",
        "unheard",
    ];
    table::render(head, 2, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_the_departed_is_shown_as_part_of_all() {
        let seen = Sighting {
            at_s: 1.25,
            after: "failover 1".into(),
            master: None,
            holders: 3,
            capacity: 200.0,
            granted_living: 40.0,
            held_living: 50.0,
            departed: 20.0,
            promised: None,
            unheard: 2,
        };
        let text = text(&[seen]);
        let cells: Vec<_> = text.lines().last().unwrap().split('|').map(str::trim).collect();
        assert_eq!(cells[1..11], ["failover 1", "-", "1.2", "3", "40.0", "50.0", "20.0", "10.0", "-", "2"]);
    }
}
