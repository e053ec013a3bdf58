//! The schedule against the documentation and a literal implementation of the algorithm.

mod edges;
mod histories;
mod naive;
mod properties;
mod vectors;
