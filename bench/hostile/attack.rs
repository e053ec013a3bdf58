//! The attacks: what each does, how the server is started, and how far its memory may grow.

use std::rc::Rc;

use serde::Serialize;
use tokio::task::spawn_local;

use crate::hostile::attacker::Attacker;

pub(crate) mod bodies;
pub(crate) mod floods;
pub(crate) mod malformed;
pub(crate) mod pages;
pub(crate) mod silence;
pub(crate) mod tables;
pub(crate) mod tokens;
pub(crate) mod unread;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Attack {
    /// Calls of GetStatus whose answers, a page of 1,000 resources each, are not read
    UnreadStatus,
    /// Calls of GetCapacity for 2,000 resources whose answers are not read
    UnreadCapacity,
    /// A page that is read one byte at a time, each of which is asked for by a frame of its own
    Dribble,
    /// Messages of 4 MiB whose last byte does not come
    EndlessBodies,
    /// Messages of five bytes that say they are 4 GiB long
    LongPrefix,
    /// Connections that say nothing, not even to begin TLS
    Silent,
    /// Connections that say half of HTTP/2's preface (after the handshake of TLS)
    HalfPreface,
    /// Connections with a call whose headers do not end
    HalfHeaders,
    /// Connections that end when they have just begun (after the handshake of TLS)
    Handshakes,
    /// Calls that are taken back at once
    RapidReset,
    /// Headers that go on for ever
    Continuation,
    /// Headers of a byte each that unpack to 4,000 bytes
    HpackBomb,
    /// PING frames, whose answers are read
    Ping,
    /// PING frames, whose answers are not read
    PingUnread,
    /// SETTINGS frames that change the windows of all streams, and the table of headers
    Settings,
    /// PRIORITY frames
    Priority,
    /// DATA frames without data
    EmptyData,
    /// Clients under ever new ids, with --max-clients 30000
    Holders,
    /// Resources under ever new names
    Resources,
    /// Places of a PRIORITY_POOL under ever new ids
    PoolPlaces,
    /// Streams of hints under ever new ids, with --max-watchers 20000
    Watchers,
    /// Scrapes of /metrics, after 1,000 resources with names that are long and full of control characters
    Scrapes,
    /// Requests to pages that come a byte at a time
    SlowPages,
    /// Calls that are no gRPC, messages that are no Protocol Buffers, connections that are no HTTP/2
    Malformed,
    /// Calls with bearer tokens that the server does not know
    BadTokens,
    /// Calls with JWTs whose signatures are wrong
    BadJwts,
}

/// Connections in parallel, of attacks that do not consist of connections.
const LANES: u32 = 4;

impl Attack {
    /// Never returns.
    pub(crate) async fn make(self, attacker: Rc<Attacker>) {
        match self {
            Attack::UnreadStatus => unread::status(attacker).await,
            Attack::UnreadCapacity => unread::capacity(attacker).await,
            Attack::Dribble => unread::dribble(attacker).await,
            Attack::EndlessBodies => bodies::endless(attacker).await,
            Attack::LongPrefix => bodies::long_prefix(attacker).await,
            Attack::Silent => silence::silent(attacker).await,
            Attack::HalfPreface => silence::half_preface(attacker).await,
            Attack::HalfHeaders => silence::half_headers(attacker).await,
            Attack::Handshakes => silence::handshakes(attacker).await,
            Attack::RapidReset => floods::rapid_reset(attacker).await,
            Attack::Continuation => floods::continuation(attacker).await,
            Attack::HpackBomb => floods::hpack_bomb(attacker).await,
            Attack::Ping => floods::ping(attacker, true).await,
            Attack::PingUnread => floods::ping(attacker, false).await,
            Attack::Settings => floods::settings(attacker).await,
            Attack::Priority => floods::priority(attacker).await,
            Attack::EmptyData => floods::empty_data(attacker).await,
            Attack::Holders => tables::holders(attacker).await,
            Attack::Resources => tables::resources(attacker).await,
            Attack::PoolPlaces => tables::pool_places(attacker).await,
            Attack::Watchers => tables::watchers(attacker).await,
            Attack::Scrapes => pages::scrapes(attacker).await,
            Attack::SlowPages => pages::slow(attacker).await,
            Attack::Malformed => malformed::malformed(attacker).await,
            Attack::BadTokens => tokens::unknown(attacker).await,
            Attack::BadJwts => tokens::wrongly_signed(attacker).await,
        }
    }

    /// Flags of the server that make tables full in seconds instead of minutes.
    pub(crate) fn flags(self) -> &'static [&'static str] {
        match self {
            Attack::Holders => &["--max-clients", "30000"],
            Attack::Watchers => &["--max-watchers", "20000"],
            _ => &[],
        }
    }

    /// Whether the server needs a policy. Without one it ignores tokens.
    pub(crate) fn meets_policy(self) -> bool {
        matches!(self, Attack::BadTokens | Attack::BadJwts)
    }

    /// How far the server's memory may grow, in MiB.
    pub(crate) fn budget_mib(self) -> u64 {
        match self {
            // Four connections with up to 16 MiB of unsent answers each, and what the allocator keeps.
            Attack::UnreadStatus | Attack::UnreadCapacity | Attack::EndlessBodies => 250,
            Attack::HpackBomb | Attack::Malformed | Attack::Holders | Attack::Scrapes => 100,
            // 7,500 at 10 KiB each.
            Attack::Resources => 150,
            Attack::Silent | Attack::HalfPreface | Attack::HalfHeaders | Attack::Handshakes => 100,
            // 15,000 at 4 KiB each.
            Attack::Watchers => 150,
            _ => 60,
        }
    }
}

/// Runs several lanes in parallel.
async fn on_lanes<F: Future<Output = ()> + 'static>(attacker: Rc<Attacker>, lane: impl Fn(Rc<Attacker>, u32) -> F) {
    on_many(attacker, LANES, lane).await;
}

/// Runs this many lanes in parallel.
async fn on_many<F: Future<Output = ()> + 'static>(
    attacker: Rc<Attacker>,
    number: u32,
    lane: impl Fn(Rc<Attacker>, u32) -> F,
) {
    let lanes: Vec<_> = (0..number).map(|number| spawn_local(lane(Rc::clone(&attacker), number))).collect();
    for lane in lanes {
        // Lanes end only with this task.
        let _ = lane.await;
    }
}
