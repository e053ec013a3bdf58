//! A backend that records when requests arrive.

use std::{cell::RefCell, net::SocketAddr, rc::Rc, time::Instant};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::spawn_local,
};

use crate::common::error::Error;

/// It serves as long as its `LocalSet` runs.
pub(crate) struct Backend {
    address: SocketAddr,
    came: Rc<RefCell<Vec<Instant>>>,
}

impl Backend {
    pub(crate) async fn start() -> Result<Backend, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::io("listen"))?;
        let address = listener.local_addr().map_err(Error::io("listen"))?;
        let came = Rc::<RefCell<Vec<Instant>>>::default();
        let noted = Rc::clone(&came);
        spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawn_local(attend(stream, Rc::clone(&noted)));
            }
        });
        Ok(Backend { address, came })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The arrivals, in milliseconds since then.
    pub(crate) fn came(&self, since: Instant) -> Vec<u32> {
        self.came.borrow().iter().map(|at| at.saturating_duration_since(since).as_millis() as u32).collect()
    }
}

/// Serves requests without a body, one at a time.
async fn attend(mut stream: TcpStream, came: Rc<RefCell<Vec<Instant>>>) {
    let mut seen = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut seen).await {
        if seen.ends_with(b"\r\n\r\n") {
            seen.clear();
            came.borrow_mut().push(Instant::now());
            if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.is_err() {
                return;
            }
        }
    }
}
