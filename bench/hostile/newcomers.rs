//! Clients that were not there before the attack: each makes a connection, asks for a lease of a resource of its own,
//! and looks whether the server is alive.

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

/// Where they come from: neither where the well-behaved are nor where the attacker is.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// The next one comes so long after the one before is done.
const PAUSE: Duration = Duration::from_millis(100);

/// What became of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct NewcomerCount {
    pub(crate) came: u64,
    pub(crate) failed: u64,
    /// Why the first of these failed.
    pub(crate) why: Option<String>,
    /// From its beginning until it had a lease.
    pub(crate) slowest_ms: f64,
}

/// They come until this is dropped or asked what became of them.
pub(crate) struct Newcomers {
    over: watch::Sender<()>,
    handle: JoinHandle<NewcomerCount>,
}

impl Newcomers {
    /// `name`: what no others are called.
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
