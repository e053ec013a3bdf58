//! Transcripts of rounds: requests, answers and the ledger afterwards, for readers who need not know Rust.
//!
//! Each file of `src/core/testscripts` describes the events and why the answers are right. The numbers are checked
//! here.
//! `UPDATE_GOLDENFILES=1 cargo test -p leaseway-core transcripts` rewrites them. Read the difference before you commit
//! it.
//!
//! # Commands
//! ```text
//! resource KIND capacity=120 [lease=60s] [refresh=16s] [reuse=prompt] [priority=strict] [reserve=0.3] [max_priority=3]
//!          [min_request_interval=0s] [safe=7.5] [holders=100] [learning=60s] [promises=kept] [parent=yes]
//!                             creates a resource, and forgets everything before
//! inherit ID 40 60s           a holder has a lease of 40 for 60 s from an earlier master
//! ask ID wants=10 [priority=3] [outstanding=80] [has=none] [uses=0.5] [cost=3] [key=IP]
//!                             queues a request of a client, which echoes the newest lease that reached it
//! node ID 3x120 1x30@2        queues a request of a child node: 3 clients want 120, one of priority 2 wants 30
//! lose ID                     the next answer to this holder will be lost
//! round                       answers all queued requests
//! refresh [ID ...]            these holders, or all in order of arrival, repeat their requests, a round for each
//! release ID [token=none]     queues the release of all leases of a holder
//! hold NAME                   delays the newest queued request under this name
//! deliver NAME                a copy of the delayed request arrives, in a round of its own
//! watch ID ...                these holders listen for hints from now on, known or not
//! unwatch ID ...              these holders stop listening
//! hints [budget=2]            prints which of them should ask again now, and why
//! capacity 50                 changes the capacity of the template
//! supply 50 30s [level=7] [each=7] [share=7 top_up=0.5] [priority=2]
//!                             the parent lends 50 for 30 s, with these terms
//! condense                    prints the report to the parent: slices, outstanding amount, version of the supply
//! early                       prints whether a report is due before the next refresh
//! advance 16s                 advances time
//! fail                        the master dies; its successor starts from the promises
//! assign ID 4 | 50pct | none    PRIORITY_POOL: assigns this capacity, or fraction of the total, to a client
//! alarm ID 100                requests an event when the cost of a client reaches this mark
//! load 7 | 50pct | ... 60s      reports the load that the protected resource can serve
//! facts ID 4                  a new master gets earlier assignments
//! pool                        prints the state of the pool
//! events                      prints the events of the pool since the last call
//! list FILTER [limit=2]       prints the members that pass the filter: known, connected, assigned or priority-connected
//! tick                        expires leases without a request
//! ```
//! `log:` is a proposal, `(first)` means that the answers of the round wait until it is stored.
//!
//! Each block ends with the ledger: the capacity that must be assumed in use (*held*), the rest (*free*), and the sum
//! of the newest live leases that have reached their holders (*believed*). The invariants are checked after every round
//! and block.

mod others;
mod pool;
mod render;

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt::Write as _,
    path::Path,
    sync::Arc,
};

use goldenscript::{ArgumentConsumer, Block, Command, Context};
use test_each_file::test_each_path;

use self::render::{amount, claim, duration, number, time, told};
use super::harness::{ask, has, now_at, options};
use crate::{
    lease::{
        holder::ShownLease,
        promises::{Inherited, Promises},
    },
    policy::{
        parameters::NamedParameter,
        settings::{AlgorithmKind, Reuse, SafeCapacity, Settings},
    },
    resource::{
        Ask, Release, Request, Resource, ResourceOptions, RoundScratch, invariant,
        report::{holder_reports, resource_report},
        supply::Source,
    },
    types::{Amount, Claim, Claims, Epoch, HolderKind, Millis, Sum, Token},
};

test_each_path! { in "./src/core/testscripts" as scripts => run }

fn run(path: &Path) {
    goldenscript::run(&mut Transcript::default(), path).expect("a script that runs");
}

/// The first token of the resource. Transcripts number leases from 1.
const TERM: Epoch = Epoch(1000);

type Failure = Box<dyn Error>;

#[derive(Default)]
struct Transcript {
    resource: Option<Resource>,
    now: Millis,
    holders: Vec<Known>,
    waiting: Vec<Request>,
    delayed: BTreeMap<String, Request>,
    losing: BTreeSet<String>,
    listening: BTreeSet<String>,
    /// The stored promises.
    peer: Promises,
    /// The number of supplies so far.
    supplies: u64,
}

/// The state of a holder as the holder knows it.
struct Known {
    ask: Ask,
    /// The newest lease that reached it, and the end of that lease at the holder.
    lease: Option<(ShownLease, Millis)>,
}

impl Transcript {
    fn resource(&mut self) -> Result<&mut Resource, Failure> {
        self.resource.as_mut().ok_or_else(|| "there is no resource yet".into())
    }

    fn known(&mut self, id: &str) -> Option<&mut Known> {
        self.holders.iter_mut().find(|known| *known.ask.id == *id)
    }

    fn create(&mut self, mut args: ArgumentConsumer<'_>) -> Result<(), Failure> {
        let kind = args.next_pos().ok_or("which algorithm?")?;
        let kind = AlgorithmKind::ALL.into_iter().find(|known| known.name() == kind).ok_or("no such algorithm")?;
        let mut settings = Settings { refresh: Millis(16_000), ..Settings::new(kind, Amount::ZERO) };
        let (mut learning_until, mut max_holders, mut inherited) = (Millis(0), usize::MAX, None);
        let mut source = Source::Own;
        while let Some((key, value)) = args.next_key() {
            match key {
                "capacity" => settings.capacity = amount(value)?,
                "lease" => settings.lease = duration(value)?,
                "refresh" => settings.refresh = duration(value)?,
                "min_request_interval" => settings.min_request_interval = duration(value)?,
                "safe" => settings.safe_capacity = SafeCapacity::Fixed(amount(value)?),
                "holders" => max_holders = value.parse()?,
                "parent" => source = Source::Parent,
                "promises" => inherited = Some(Inherited::default()),
                "learning" => learning_until = self.now.plus(duration(value)?),
                _ => settings.apply(&NamedParameter { name: key.to_owned(), value: Some(value.to_owned()) })?,
            }
        }
        args.reject_next()?;
        let now = self.now;
        let options =
            ResourceOptions { source, epoch: TERM, learning_until, max_holders, inherited, ..options(settings) };
        *self = Transcript { resource: Some(Resource::new(options)), now, ..Transcript::default() };
        Ok(())
    }

    fn inherit(&mut self, mut args: ArgumentConsumer<'_>) -> Result<(), Failure> {
        let id = args.next_pos().ok_or("who?")?;
        let capacity = amount(args.next_pos().ok_or("how much?")?)?;
        let end = self.now.plus(duration(args.next_pos().ok_or("how long?")?)?);
        args.reject_next()?;
        let has = ShownLease { token: Token::new(1), capacity, expiry_time: now_at(end).unix };
        self.holders.push(Known { ask: ask(id, 0.0, None), lease: Some((has, end)) });
        Ok(())
    }

    fn ask(&mut self, kind: HolderKind, mut args: ArgumentConsumer<'_>) -> Result<(), Failure> {
        let id = args.next_pos().ok_or("who?")?;
        let priority = args.take_key("priority").map_or(Ok(0), str::parse)?;
        let mut claims = Claims::new();
        if let Some(wants) = args.take_key("wants") {
            claims.push(Claim::of_client(amount(wants)?, priority));
        }
        let outstanding = args.take_key("outstanding").map_or(Ok(Amount::ZERO), amount)?;
        let echoes = args.take_key("has").is_none();
        let pool_fields = pool::pool_fields(&mut args)?;
        while let Some(slice) = args.next_pos() {
            claims.push(claim(slice)?);
        }
        args.reject_next()?;
        let plain = Ask { kind, claims, pool_fields, ..ask(id, 0.0, None) };
        let has = match self.known(id) {
            Some(known) => {
                known.ask = plain.clone();
                known.lease.map(|(has, _)| has)
            }
            None => {
                self.holders.push(Known { ask: plain.clone(), lease: None });
                None
            }
        };
        self.waiting.push(Request::Ask(Ask { has: has.filter(|_| echoes), outstanding: Some(outstanding), ..plain }));
        Ok(())
    }

    fn release(&mut self, mut args: ArgumentConsumer<'_>) -> Result<(), Failure> {
        let id = args.next_pos().ok_or("who?")?;
        let names_it = args.take_key("token").is_none();
        args.reject_next()?;
        let at = self.holders.iter().position(|known| *known.ask.id == *id).ok_or("no client has this name")?;
        let Known { ask, lease } = self.holders.remove(at);
        let token = lease.and_then(|(has, _)| has.token).filter(|_| names_it);
        self.waiting.push(Request::Release(Release { kind: ask.kind, id: ask.id, token, instance: None, spent: None }));
        Ok(())
    }

    fn refresh(&mut self, args: ArgumentConsumer<'_>) -> Result<String, Failure> {
        let mut ids: Vec<String> = args.map(ToString::to_string).collect();
        if ids.is_empty() {
            ids = self.holders.iter().map(|known| known.ask.id.to_string()).collect();
        }
        let mut output = String::new();
        for id in ids {
            let known = self.known(&id).ok_or("no client has this name")?;
            let request = Request::Ask(Ask { has: known.lease.map(|(has, _)| has), ..known.ask.clone() });
            output += &self.round(vec![request])?;
        }
        Ok(output)
    }

    fn round(&mut self, requests: Vec<Request>) -> Result<String, Failure> {
        let now = self.now;
        let resource = self.resource()?;
        let mut before = resource.sums().held;
        let mut answers = Vec::new();
        resource.round(now_at(now), &mut requests.clone(), &mut answers, &mut RoundScratch::default());
        for request in &requests {
            if let Request::Ask(ask) = request {
                before += ask.outstanding.unwrap_or_default(); // News that no decision could have prevented.
            }
        }
        invariant::held_within_capacity(resource, before)?;
        let newcomers: Vec<_> = resource.newcomers().map(|(kind, id)| (kind, Arc::clone(id))).collect();
        for (kind, id) in newcomers {
            if self.listening.contains(&*id) {
                self.resource()?.watch(kind, &id);
            }
        }
        let mut output = self.promise()?;
        for (request, answer) in requests.into_iter().zip(answers) {
            let id = match request {
                Request::Ask(Ask { id, .. })
                | Request::Renew(Ask { id, .. })
                | Request::Release(Release { id, .. }) => id,
            };
            let lost = self.losing.remove(&*id);
            writeln!(output, "{id}: {}{}", told(&answer), if lost { " (lost on the way)" } else { "" })?;
            if let (Some(lease), false, Some(known)) = (answer.lease(), lost, self.known(&id)) {
                invariant::lease_within_bounds(lease, None, now, None)?;
                known.lease = Some((has(lease), now.plus(lease.length)));
            }
        }
        Ok(output)
    }

    fn watch(&mut self, args: ArgumentConsumer<'_>, listens: bool) -> Result<(), Failure> {
        for id in args.map(ToString::to_string) {
            let kind = self.known(&id).map_or(HolderKind::Client, |known| known.ask.kind);
            if listens {
                self.resource()?.watch(kind, &id);
                self.listening.insert(id);
            } else {
                self.resource()?.unwatch(kind, &id);
                self.listening.remove(&id);
            }
        }
        Ok(())
    }

    fn hints(&mut self, mut args: ArgumentConsumer<'_>) -> Result<String, Failure> {
        let budget = args.take_key("budget").map_or(Ok(usize::MAX), str::parse)?;
        args.reject_next()?;
        let now = self.now;
        let resource = self.resource()?;
        let mut hints = Vec::new();
        resource.hints(now, budget, &mut hints);
        let mut output = String::new();
        for hint in &hints {
            writeln!(output, "{} should ask: {}", hint.id, hint.reason.name())?;
        }
        match resource.next_hints(now) {
            Some(next) if next <= now => output += "there is more to look at\n",
            Some(next) => writeln!(output, "next look in {}", time(next.since(now)))?,
            None => output += "nothing to look at before something changes\n",
        }
        Ok(output)
    }

    fn deliver(&mut self, mut args: ArgumentConsumer<'_>) -> Result<String, Failure> {
        let name = args.next_pos().ok_or("which?")?;
        let request = self.delayed.get(name).ok_or("nothing of that name")?.clone();
        // The sender no longer waits for an answer.
        if let Request::Ask(ask) = &request {
            self.losing.insert(ask.id.to_string());
        }
        let output = self.round(vec![request])?;
        Ok(output.replace(" (lost on the way)", " (no client waits for this)"))
    }

    fn advance(&mut self, mut args: ArgumentConsumer<'_>) -> Result<(), Failure> {
        self.now = self.now.plus(duration(args.next_pos().ok_or("how long?")?)?);
        for known in &mut self.holders {
            known.lease = known.lease.filter(|(_, end)| self.now < *end);
        }
        Ok(())
    }

    fn books(&mut self) -> Result<String, Failure> {
        let now = self.now;
        let believed: Vec<Amount> = self.holders.iter().filter_map(|known| Some(known.lease?.0.capacity)).collect();
        let resource = self.resource()?;
        let (report, sums) = (resource_report(resource, now), resource.sums());
        if resource.is_bounded() && !resource.is_learning(now) && report.settings.reuse == Reuse::Confirmed {
            invariant::believed_within_capacity(believed.iter().copied(), sums.held)?;
        }
        let capacity = resource.total();
        let mut output = format!(
            "at {}: capacity {}, held {}, free {}, believed {}",
            time(now),
            number(capacity.get()),
            number(sums.held.get()),
            number((Sum::from(capacity) - sums.held).get()),
            number(believed.into_iter().collect::<Sum>().get()),
        );
        if let Some(promises) = resource.promises() {
            write!(output, ", promised {}", number(promises.total.get()))?;
            if promises.unclaimed > Amount::ZERO {
                write!(output, ", not heard of {}", number(promises.unclaimed.get()))?;
            }
        }
        if report.learning > Millis(0) {
            write!(output, ", learning for {}", time(report.learning))?;
        }
        output += "\n";
        let holders = holder_reports(resource, now, 0, usize::MAX).0;
        if !holders.is_empty() {
            writeln!(output, "  {:<10}{:>12}{:>12}{:>12}{:>12}", "", "wants", "due", "granted", "held")?;
        }
        for holder in holders {
            let columns = [holder.wants, holder.due, holder.granted, holder.held].map(|amount| number(amount.get()));
            let [wants, due, granted, held] = columns;
            writeln!(output, "  {:<10}{wants:>12}{due:>12}{granted:>12}{held:>12}", &*holder.id)?;
        }
        Ok(output)
    }
}

impl goldenscript::Runner for Transcript {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Failure> {
        let mut args = command.consume_args();
        match &*command.name {
            "resource" => self.create(args)?,
            "inherit" => self.inherit(args)?,
            "ask" => self.ask(HolderKind::Client, args)?,
            "node" => self.ask(HolderKind::Node, args)?,
            "lose" => drop(self.losing.insert(args.next_pos().ok_or("whose?")?.to_owned())),
            "round" => {
                let waiting = std::mem::take(&mut self.waiting);
                return self.round(waiting);
            }
            "refresh" => return self.refresh(args),
            "release" => self.release(args)?,
            "hold" => {
                let request = self.waiting.pop().ok_or("nothing waits")?;
                self.delayed.insert(args.next_pos().ok_or("by which name?")?.to_owned(), request);
            }
            "deliver" => return self.deliver(args),
            "watch" => self.watch(args, true)?,
            "unwatch" => self.watch(args, false)?,
            "hints" => return self.hints(args),
            "capacity" => {
                let resource = self.resource()?;
                let mut settings = resource.settings().clone();
                settings.capacity = amount(args.next_pos().ok_or("how much?")?)?;
                resource.configure(settings);
            }
            "supply" => self.supply(args)?,
            "condense" => return self.summarize(),
            "early" => return self.early(),
            "assign" => return self.assign(args),
            "alarm" => self.alarm(args)?,
            "load" => return self.load(args),
            "facts" => self.facts(args)?,
            "pool" => return self.pool(),
            "events" => return self.events(),
            "list" => return self.list(args),
            "advance" => self.advance(args)?,
            "fail" => self.fail()?,
            "tick" => {
                let now = self.now;
                self.resource()?.tick(now);
                return self.promise();
            }
            other => return Err(format!("unknown command `{other}`").into()),
        }
        Ok(String::new())
    }

    fn end_block(&mut self, _: &Block) -> Result<String, Failure> {
        if !self.waiting.is_empty() {
            return Err("what waits needs a `round`".into());
        }
        self.books()
    }
}
