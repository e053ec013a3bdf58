//! What every request meets first: those for capacity go straight to their service, all others are found by tonic's router.
//!
//! Nearly all requests are for capacity, and the router costs each of them several allocations: it matches the path against a tree,
//! keeps what it has matched with the request, and puts service, request and answer into boxes of its own. Of the 65,000
//! instructions of a GetCapacity that was 6,500.

use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use futures_util::future::Either;
use leaseway_proto::doorman::capacity_server::{CapacityServer, SERVICE_NAME};
use tonic::{
    body::Body,
    codegen::{Service, http},
    service::Routes,
};

use super::CapacityService;

type Direct = CapacityServer<CapacityService>;
type Request = http::Request<Body>;

#[derive(Clone)]
pub(super) struct Front {
    capacity: Direct,
    others: Routes,
}

impl Front {
    pub(super) fn new(capacity: Direct, others: Routes) -> Front {
        Front { capacity, others: others.prepare() }
    }
}

/// Whether the path is that of a method of the capacity service; it may be one that does not exist.
fn is_for_capacity(path: &str) -> bool {
    let service = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    service.is_some_and(|(service, _)| service == SERVICE_NAME)
}

impl Service<Request> for Front {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Either<<Direct as Service<Request>>::Future, <Routes as Service<Request>>::Future>;

    /// Both always are: neither has a limit of its own.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if is_for_capacity(request.uri().path()) {
            Either::Left(self.capacity.call(request))
        } else {
            Either::Right(self.others.call(request))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_methods_of_the_capacity_service_go_straight_to_it() {
        for path in ["/doorman.Capacity/GetCapacity", "/doorman.Capacity/NoSuchMethod", "/doorman.Capacity/"] {
            assert!(is_for_capacity(path), "{path}");
        }
        for path in ["/doorman.Capacity", "/doorman.CapacityX/GetCapacity", "doorman.Capacity/GetCapacity", "/", ""] {
            assert!(!is_for_capacity(path), "{path}");
        }
    }
}
