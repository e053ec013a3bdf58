//! A client as the Go library of 2016 is one: it asks for all its resources at once, echoes what it was given together
//! with what it does not know, and repeats a request that has failed, byte for byte, until it is answered. Meanwhile it
//! does nothing else, and it goes on using what it was given last, for ever.

use std::{net::SocketAddr, thread, time::Duration};

use prost::Message as _;
use prost_reflect::{DynamicMessage, Value};
use tonic::{Status, transport::Endpoint};

use super::{
    original::{build, entry, inner, list, number, strict},
    raw::Raw,
    wait::block_on,
};

/// It waits this much of the time that the library waits.
const SCALE: f64 = 0.001;
/// The library tries without end. After so many tries of the same bytes this one is stuck: its calls then end with an
/// error.
const TRIES: i32 = 8;
/// The library asks no sooner than this after any answer.
const MINIMUM_REFRESH: Duration = Duration::from_secs(5);

pub(crate) struct GoClient {
    /// Where it was told to connect to. It goes back there after each error.
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

    /// Takes on a resource, and asks for all of them at once. Whether what is wanted is sensible is not looked at.
    pub(crate) fn resource(&mut self, id: &str, wants: f64) -> Result<(), Status> {
        self.take_on([(id.to_owned(), wants)])
    }

    /// Several resources, before the first request.
    pub(crate) fn take_on(&mut self, resources: impl IntoIterator<Item = (String, f64)>) -> Result<(), Status> {
        self.resources.extend(resources.into_iter().map(|(id, wants)| GoResource { id, wants, lease: None }));
        self.refresh()
    }

    /// Wants something else from the next request on. NaN passes.
    pub(crate) fn ask(&mut self, id: &str, wants: f64) {
        #[allow(clippy::neg_cmp_op_on_partial_ord, reason = "as the library has it")]
        let refused = wants <= 0.0;
        assert!(!refused, "wants must be > 0.0");
        self.resources.iter_mut().find(|resource| resource.id == id).unwrap().wants = wants;
    }

    /// What it may use; nothing before the first lease.
    pub(crate) fn capacity(&self, id: &str) -> Option<f64> {
        let resource = self.resources.iter().find(|resource| resource.id == id).unwrap();
        resource.lease.as_ref().map(|lease| number(lease, "capacity"))
    }

    /// The lease with everything in it.
    pub(crate) fn lease(&self, id: &str) -> Option<DynamicMessage> {
        self.resources.iter().find(|resource| resource.id == id).unwrap().lease.clone()
    }

    /// How many of its resources have a lease.
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

    /// Asks for everything.
    pub(crate) fn refresh(&mut self) -> Result<(), Status> {
        let entries =
            self.resources.iter().map(|resource| entry(&resource.id, resource.wants, resource.lease.as_ref()));
        let fields = [("client_id", Value::String(self.id.clone())), ("resource", Value::List(entries.collect()))];
        let answer = self.repeat("GetCapacity", &build("GetCapacityRequest", fields).encode_to_vec())?;
        for response in list(&strict("GetCapacityResponse", &answer), "response") {
            let id = response.get_field_by_name("resource_id").unwrap().as_str().unwrap().to_owned();
            // One that is missing keeps its lease.
            if let Some(resource) = self.resources.iter_mut().find(|resource| resource.id == id) {
                resource.lease = Some(inner(&response, "gets"));
            }
        }
        Ok(())
    }

    /// Gives everything back: an empty id for each, and then the ids.
    pub(crate) fn close(mut self) -> Result<(), Status> {
        let ids = self.resources.iter().map(|resource| Value::String(resource.id.clone()));
        let ids = std::iter::repeat_n(Value::String(String::new()), self.resources.len()).chain(ids).collect();
        let fields = [("client_id", Value::String(self.id.clone())), ("resource_id", Value::List(ids))];
        self.repeat("ReleaseCapacity", &build("ReleaseCapacityRequest", fields).encode_to_vec()).map(|_| ())
    }

    /// Follows redirects to the master; after any other failure the same bytes are sent again.
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

/// The redirect in an answer, if any.
fn elsewhere(method: &str, answer: &[u8]) -> Option<Option<String>> {
    let answer = strict(&format!("{method}Response"), answer);
    answer.has_field_by_name("mastership").then(|| {
        let address = inner(&answer, "mastership").get_field_by_name("master_address")?.as_str()?.to_owned();
        (!address.is_empty()).then_some(address)
    })
}

/// How the library's limiter lets calls through.
#[derive(Debug, PartialEq)]
pub(crate) enum Pace {
    Unlimited,
    Blocked,
    /// So many calls every so many nanoseconds.
    Every(i64, i64),
}

/// What the library's limiter makes of a capacity: an interval in whole milliseconds, in nanoseconds as an `int64`,
/// which wraps.
pub(crate) fn pace(capacity: f64) -> Pace {
    /// As amd64 does it: what does not fit, and NaN, is the smallest number.
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
        // A timer that has run out already fires at once.
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
    // The longest interval is 2^63 ns: what is shorter than a call in that time wraps.
    let longest = 1e9 / 2f64.powi(63);
    assert!(matches!(pace(longest * 1.001), Pace::Every(1, _)));
    assert_eq!(pace(longest * 0.999), Pace::Unlimited);
}
