//! A client that behaves as the Go library of 2016: it asks for all resources at once, echoes its leases with unknown
//! fields, and repeats a failed request byte for byte until it is answered. Meanwhile it does nothing else, and it uses
//! its last leases for ever.

use std::{net::SocketAddr, thread, time::Duration};

use prost::Message as _;
use prost_reflect::{DynamicMessage, Value};
use tonic::{Status, transport::Endpoint};

use super::{
    legacy_client::{build, entry, inner, list, number, strict},
    raw::Raw,
    wait::block_on,
};

/// Waits are scaled by this factor.
const SCALE: f64 = 0.001;
/// The library tries without end. After this many tries of the same bytes, calls of this client fail.
const TRIES: i32 = 8;
/// The minimum pause of the library after an answer.
const MINIMUM_REFRESH: Duration = Duration::from_secs(5);

pub(crate) struct GoClient {
    /// The address it was given. It returns there after each error.
    origin: SocketAddr,
    raw: Raw,
    id: String,
    resources: Vec<GoResource>,
}

struct GoResource {
    id: String,
    wants: f64,
    lease: Option<DynamicMessage>,
}

impl GoClient {
    pub(crate) fn new(origin: SocketAddr, id: &str) -> GoClient {
        GoClient { origin, raw: connect(&origin.to_string()), id: id.into(), resources: Vec::new() }
    }

    /// Adds a resource, and asks for all resources at once. Does not check `wants`.
    pub(crate) fn resource(&mut self, id: &str, wants: f64) -> Result<(), Status> {
        self.take_on([(id.to_owned(), wants)])
    }

    /// Adds resources before the first request.
    pub(crate) fn take_on(&mut self, resources: impl IntoIterator<Item = (String, f64)>) -> Result<(), Status> {
        self.resources.extend(resources.into_iter().map(|(id, wants)| GoResource { id, wants, lease: None }));
        self.refresh()
    }

    /// Changes what it wants from the next request on. NaN is allowed.
    pub(crate) fn ask(&mut self, id: &str, wants: f64) {
        #[allow(clippy::neg_cmp_op_on_partial_ord, reason = "as the library has it")]
        let refused = wants <= 0.0;
        assert!(!refused, "wants must be > 0.0");
        self.resources.iter_mut().find(|resource| resource.id == id).unwrap().wants = wants;
    }

    /// The capacity that it may use. `None` before the first lease.
    pub(crate) fn capacity(&self, id: &str) -> Option<f64> {
        let resource = self.resources.iter().find(|resource| resource.id == id).unwrap();
        resource.lease.as_ref().map(|lease| number(lease, "capacity"))
    }

    /// The lease with unknown fields.
    pub(crate) fn lease(&self, id: &str) -> Option<DynamicMessage> {
        self.resources.iter().find(|resource| resource.id == id).unwrap().lease.clone()
    }

    /// The number of resources with a lease.
    pub(crate) fn leases(&self) -> usize {
        self.resources.iter().filter(|resource| resource.lease.is_some()).count()
    }

    /// When it asks again.
    pub(crate) fn sleeps(&self) -> Duration {
        let interval = |resource: &GoResource| {
            let lease = resource.lease.as_ref()?;
            lease.get_field_by_name("refresh_interval")?.as_i64()
        };
        let least = self.resources.iter().map(|resource| interval(resource).unwrap_or(0)).min().unwrap_or(3600);
        Duration::from_secs(u64::try_from(least).unwrap_or(0)).max(MINIMUM_REFRESH)
    }

    pub(crate) fn refresh(&mut self) -> Result<(), Status> {
        let entries =
            self.resources.iter().map(|resource| entry(&resource.id, resource.wants, resource.lease.as_ref()));
        let fields = [("client_id", Value::String(self.id.clone())), ("resource", Value::List(entries.collect()))];
        let answer = self.repeat("GetCapacity", &build("GetCapacityRequest", fields).encode_to_vec())?;
        for response in list(&strict("GetCapacityResponse", &answer), "response") {
            let id = response.get_field_by_name("resource_id").unwrap().as_str().unwrap().to_owned();
            // A resource that is missing keeps its lease.
            if let Some(resource) = self.resources.iter_mut().find(|resource| resource.id == id) {
                resource.lease = Some(inner(&response, "gets"));
            }
        }
        Ok(())
    }

    /// Releases everything: an empty id for each resource, and then the ids.
    pub(crate) fn close(mut self) -> Result<(), Status> {
        let ids = self.resources.iter().map(|resource| Value::String(resource.id.clone()));
        let ids = std::iter::repeat_n(Value::String(String::new()), self.resources.len()).chain(ids).collect();
        let fields = [("client_id", Value::String(self.id.clone())), ("resource_id", Value::List(ids))];
        self.repeat("ReleaseCapacity", &build("ReleaseCapacityRequest", fields).encode_to_vec()).map(|_| ())
    }

    /// Follows redirects to the master. After any other failure it sends the same bytes again.
    fn repeat(&mut self, method: &str, bytes: &[u8]) -> Result<Vec<u8>, Status> {
        let mut refused = Status::unknown("it was not asked");
        for k in 1..=TRIES {
            match self.raw.call(method, bytes.to_vec()) {
                Ok(answer) => match elsewhere(method, &answer) {
                    None => return Ok(answer),
                    Some(Some(master)) => {
                        self.raw = connect(&master);
                        continue;
                    }
                    Some(None) => refused = Status::unavailable("no master is known"),
                },
                Err(status) => {
                    refused = status;
                    self.raw = connect(&self.origin.to_string());
                }
            }
            thread::sleep(Duration::from_secs_f64((1.3f64.powi(k)).min(60.0) * SCALE));
        }
        Err(refused)
    }
}

fn connect(address: &str) -> Raw {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    Raw::over(block_on(endpoint.connect()).unwrap())
}

/// The address of a redirect, if the answer is one.
fn elsewhere(method: &str, answer: &[u8]) -> Option<Option<String>> {
    let answer = strict(&format!("{method}Response"), answer);
    answer.has_field_by_name("mastership").then(|| {
        let address = inner(&answer, "mastership").get_field_by_name("master_address")?.as_str()?.to_owned();
        (!address.is_empty()).then_some(address)
    })
}

#[derive(Debug, PartialEq)]
pub(crate) enum Pace {
    Unlimited,
    Blocked,
    /// This many calls per number of nanoseconds.
    Every(i64, i64),
}

/// The library converts a capacity to an interval in whole milliseconds, as an `int64` of nanoseconds that may wrap.
pub(crate) fn pace(capacity: f64) -> Pace {
    /// As on amd64: NaN and numbers that do not fit become the minimum.
    fn int(value: f64) -> i64 {
        let bound = 2f64.powi(63);
        if (-bound..bound).contains(&value) { value as i64 } else { i64::MIN }
    }
    let (permits, millis) = match capacity {
        c if c < 0.0 => return Pace::Unlimited,
        0.0 => return Pace::Blocked,
        c if c <= 10.0 => (1, int(1000.0 / c)),
        c => {
            let r = int(c);
            let permits = r / r.min(50);
            (permits, permits * 1000 / r)
        }
    };
    match millis.wrapping_mul(1_000_000) {
        // An expired timer fires at once.
        nanos if nanos <= 0 => Pace::Unlimited,
        nanos => Pace::Every(permits, nanos),
    }
}

#[test]
fn the_limiter_of_2016_takes_a_crumb_for_no_limit() {
    assert_eq!(pace(0.5), Pace::Every(1, 2_000_000_000));
    assert_eq!(pace(100.0), Pace::Every(2, 20_000_000));
    assert_eq!((pace(-15.0), pace(0.0)), (Pace::Unlimited, Pace::Blocked));
    assert_eq!(pace(1e-9), Pace::Every(1, 999_999_999_999_000_000), "one call in 31 years");
    assert_eq!(pace(2f64.powi(-48)), Pace::Unlimited, "as was seen: 3.55e-15");
    // The longest interval is 2^63 ns; anything beyond wraps.
    let longest = 1e9 / 2f64.powi(63);
    assert!(matches!(pace(longest * 1.001), Pace::Every(1, _)));
    assert_eq!(pace(longest * 0.999), Pace::Unlimited);
}
