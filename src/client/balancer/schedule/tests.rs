//! The schedule against documents and against the algorithm as it is written.

mod edges;
mod histories;
mod naive;
mod properties;
mod vectors;
