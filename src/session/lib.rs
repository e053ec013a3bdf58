//! How a client or a child node asks for leases, as a machine without clock or I/O.
