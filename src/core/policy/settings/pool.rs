//! Settings of PRIORITY_POOL.

use crate::types::{Amount, Millis};

/// How the total falls in an overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum DropMode {
    /// The total falls by the capacity of the victims, so their places close.
    #[default]
    Slots,
    /// The total falls by a fraction for each victim; larger victims count more (LES, 2019 to 2023).
    Exp,
    /// The total falls steadily while the overload lasts. The victims' usage is not counted (LES, early 2019).
    Rate,
}

/// When the total rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum RaiseMode {
    /// While most of the total is connected and usage is well below the base.
    #[default]
    Idle,
    /// While most of the total is connected, regardless of usage (LES, 2019 to 2023).
    Demand,
}

/// Which clients share an account, and so a balance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum FreeKey {
    /// Clients with the same source address, which the caller provides in
    /// [`PoolFields::key`](crate::pool::PoolFields::key). Without an address, each client id has its own account.
    #[default]
    PeerIp,
    /// Clients whose ids have the same part before the first `:`.
    Host,
    ClientId,
}

impl FreeKey {
    /// The part of a client id before the first `:`.
    pub(crate) fn host(id: &str) -> &str {
        id.split_once(':').map_or(id, |(host, _)| host)
    }
}

/// The relative weights of time cost and request cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum CostWeights {
    /// The configured factors.
    #[default]
    Static,
    /// Request cost dominates while overloads limit the total. Time cost dominates while the total is at its maximum
    /// and usage has been low for the period [`PoolSettings::calm`]. The other cost counts for a tenth.
    Auto,
}

/// The parameters of PRIORITY_POOL.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoolSettings {
    /// The smallest useful capacity. A client has nothing or at least this much; a free client has exactly this much.
    pub min_capacity: Amount,
    /// The maximum of the total; absent: the capacity, so there is no overbooking.
    pub max_capacity: Option<Amount>,
    /// The total grows at most by a factor of e in this time.
    pub raise_tc: Millis,
    /// The total grows only while more than this fraction of it is connected.
    pub raise_threshold: f64,
    pub raise_mode: RaiseMode,
    pub drop_mode: DropMode,
    /// With [`DropMode::Exp`]: the exponent of the fall if all clients were victims.
    pub drop_factor: f64,
    /// How long the manager may choose which priority clients to lower; absent: one refresh interval.
    pub reduction_window: Option<Millis>,
    /// Balances of disconnected free clients decay by a factor of e in this time.
    pub negative_tc: Millis,
    /// A connected free client is displaced only if its balance exceeds that of a waiting client by more than this.
    pub connected_bias: f64,
    /// The balance of a free client grows by this much for each second of being connected.
    pub time_factor: f64,
    /// The balance of a free client grows by this much for each unit of reported usage.
    pub request_factor: f64,
    pub cost_weights: CostWeights,
    /// With [`CostWeights::Auto`]: the minimum duration of low usage.
    pub calm: Millis,
    /// With [`CostWeights::Auto`]: usage below this fraction of the base is low.
    pub calm_ratio: f64,
    pub free_key: FreeKey,
    /// Maximum number of remembered balances of disconnected clients. The smallest are dropped first.
    pub max_remembered: usize,
    /// How much unused capacity a client may save up, as a duration. Clients enforce this limit themselves.
    pub burst: Millis,
    /// An event is sent each time the cost of a client has grown by this much; zero: never.
    pub usage_update_units: f64,
    /// A usage report expires after twice this time. After that, the total does not rise until the client reports
    /// again. Absent: one refresh interval.
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
