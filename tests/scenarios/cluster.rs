//! Peers of a node: failover, membership and lost data.

mod backup;
mod budgets;
mod failover;
mod learning;
mod lost_logs;
mod membership;
mod peers;
mod restart;
mod suspension;
mod take_over;
mod take_over_doorman;
mod transfer;
