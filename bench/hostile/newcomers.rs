//! Newcomers: clients that arrive during the attack. Each connects, asks for a lease of a resource of its own, and
//! reads the liveness probe.

use std::{
    net::{Ipv4Addr, SocketAddr},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use leaseway_proto::doorman::{GetCapacityRequest, GetCapacityResponse, ResourceRequest};
use serde::Serialize;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    common::{current_thread, error::Error},
    hostile::target::{Target, page},
    load::{
        connection::{CONNECT_PATIENCE, Connection, Failure, Path},
        socket::Dialer,
    },
};

/// An address that neither the well-behaved clients nor the attacker use.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// The pause between two newcomers.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct NewcomerCount {
    pub(crate) came: u64,
    pub(crate) failed: u64,
    /// The error of the first that failed.
    pub(crate) why: Option<String>,
    /// From the attempt to connect until it had a lease.
    pub(crate) slowest_ms: f64,
}

/// Newcomers arrive until this is dropped.
pub(crate) struct Newcomers {
    over: watch::Sender<()>,
    handle: JoinHandle<NewcomerCount>,
}

impl Newcomers {
    /// `name` has to be unique.
    pub(crate) fn come(target: &Target, name: String) -> Result<Newcomers, Error> {
        let runtime = current_thread().map_err(Error::io("start a runtime"))?;
        let (over, is_over) = watch::channel(());
        let [dialer, reader] = [&target.dialer, &target.reader].map(|dialer| dialer.clone().from(ADDRESS.into()));
        let (grpc, http) = (target.grpc, target.http);
        let body = move || {
            runtime.block_on(async {
                let mut count = NewcomerCount::default();
                while is_over.has_changed().is_ok() {
                    let began = Instant::now();
                    let came = newcomer(&dialer, grpc, format!("{name}-{}", count.came)).await;
                    let took = began.elapsed().as_secs_f64() * 1e3;
                    let alive = page(&reader, http, "/healthz").await.map_err(|why| format!("/healthz: {why}"));
                    count.add(took, came.and(alive.map(drop)));
                    sleep(PAUSE).await;
                }
                count
            })
        };
        let handle =
            thread::Builder::new().name("newcomers".into()).spawn(body).map_err(Error::io("start a thread"))?;
        Ok(Newcomers { over, handle })
    }

    pub(crate) fn count(self) -> NewcomerCount {
        drop(self.over);
        self.handle.join().expect("newcomers do not panic")
    }
}

impl NewcomerCount {
    fn add(&mut self, took_ms: f64, outcome: Result<(), String>) {
        self.came += 1;
        self.slowest_ms = self.slowest_ms.max(took_ms);
        if let Err(why) = outcome {
            self.failed += 1;
            self.why.get_or_insert(why);
        }
    }

    pub(crate) fn and(mut self, other: NewcomerCount) -> NewcomerCount {
        self.came += other.came;
        self.failed += other.failed;
        self.why = self.why.or(other.why);
        self.slowest_ms = self.slowest_ms.max(other.slowest_ms);
        self
    }
}

async fn newcomer(dialer: &Dialer, target: SocketAddr, name: String) -> Result<(), String> {
    let (connection, driver) = Connection::open(dialer, target).await?;
    let path = Path::new(dialer, target, "GetCapacity");
    let entry = ResourceRequest {
        resource_id: Some(name.clone()),
        priority: Some(0),
        wants: Some(1.0),
        ..ResourceRequest::default()
    };
    let request = GetCapacityRequest { client_id: Some(name), resource: vec![entry], ..GetCapacityRequest::default() };
    let answer = tokio::select! {
        answer = timeout(CONNECT_PATIENCE, connection.call::<GetCapacityResponse>(&path, &request)) => {
            answer.map_err(|_| "no answer in time".to_owned())?.map_err(Failure::reason)?
        }
        _ = driver => return Err("the connection ended".to_owned()),
    };
    match &answer.response[..] {
        [_] => Ok(()),
        _ => Err(format!("no lease: {:?}", answer.problem)),
    }
}
