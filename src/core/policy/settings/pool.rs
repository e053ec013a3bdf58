//! How a pool is run.

use crate::types::{Amount, Millis};

/// How the total falls when there is an overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum DropMode {
    /// With each victim goes what it had: the place closes with the client.
    #[default]
    Slots,
    /// By a part of the total for each victim, more for larger ones (LES, 2019 to 2023).
    Exp,
    /// Steadily for as long as the overload lasts (LES, early 2019): the victims' use does not count any more.
    Rate,
}

/// When the total rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum RaiseMode {
    /// While most of it is connected and well less than the base is used.
    #[default]
    Idle,
    /// While most of it is connected, regardless of use (LES, 2019 to 2023).
    Demand,
}

/// Upper limit of the balance of free clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum FreeKey {
    /// The address that the request came from, which the caller provides ([`News::key`](crate::pool::News::key)).
    /// Without it: the id of the client.
    #[default]
    PeerIp,
    /// The part of the client's id before the first `:`, or else all of it.
    Host,
    ClientId,
}

impl FreeKey {
    /// The part of an id that names a host.
    pub(crate) fn host(id: &str) -> &str {
        id.split_once(':').map_or(id, |(host, _)| host)
    }
}

/// How the two kinds of cost are weighed against each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum CostWeights {
    /// By the factors alone.
    #[default]
    Static,
    /// While the total is limited by overloads the cost of requests dominates; when it is as large as it may be, and
    /// little is used for long, the cost of time. What is dominated counts for a tenth.
    Auto,
}

/// The parameters of PRIORITY_POOL.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoolSettings {
    /// The least that is any use to a client: it has nothing or at least this much. Free clients have exactly this
    /// much.
    pub min_capacity: Amount,
    /// The most that the total may be; absent: the capacity, so that nothing is overbooked.
    pub max_capacity: Option<Amount>,
    /// The total grows by a factor of e in this time at most.
    pub raise_tc: Millis,
    /// It grows only while more than this part of it is connected.
    pub raise_threshold: f64,
    pub raise_mode: RaiseMode,
    pub drop_mode: DropMode,
    /// With [`DropMode::Exp`]: the exponent of the fall if all clients were victims.
    pub drop_factor: f64,
    /// How long the manager has to choose which priority clients to lower; absent: a refresh interval.
    pub reduction_window: Option<Millis>,
    /// Balances of free clients that are away decay by a factor of e in this time.
    pub negative_tc: Millis,
    /// A connected free client keeps its place unless its balance is more than this above that of a waiting one.
    pub connected_bias: f64,
    /// Added to the balance of a free client per second of being connected.
    pub time_factor: f64,
    /// Added to it per unit of reported usage.
    pub request_factor: f64,
    pub cost_weights: CostWeights,
    /// With [`CostWeights::Auto`]: for how long little must have been used.
    pub calm: Millis,
    /// With [`CostWeights::Auto`]: little is this part of the base.
    pub calm_ratio: f64,
    pub free_key: FreeKey,
    /// So many balances of clients that are away are remembered; the smallest go first.
    pub max_remembered: usize,
    /// The time of their capacity that clients may save up while they use less. The pool tells them; they keep to it.
    pub burst: Millis,
    /// An event tells the cost of a client whenever it has grown by this much; zero: never.
    pub usage_update_units: f64,
    /// A usage report counts for twice this long; then the total does not rise on its account; absent: a refresh
    /// interval.
    pub eval_interval: Option<Millis>,
}

impl Default for PoolSettings {
    fn default() -> PoolSettings {
        PoolSettings {
            min_capacity: Amount::clamped(1.0),
            max_capacity: None,
            raise_tc: Millis::from_secs(3600),
            raise_threshold: 0.75,
            raise_mode: RaiseMode::default(),
            drop_mode: DropMode::default(),
            drop_factor: 0.1,
            reduction_window: None,
            negative_tc: Millis::from_secs(3600),
            connected_bias: 180.0,
            time_factor: 1.0,
            request_factor: 1.0,
            cost_weights: CostWeights::default(),
            calm: Millis::from_secs(600),
            calm_ratio: 0.5,
            free_key: FreeKey::default(),
            max_remembered: 10_000,
            burst: Millis::from_secs(6),
            usage_update_units: 0.0,
            eval_interval: None,
        }
    }
}
