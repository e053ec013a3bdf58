//! Connections that do next to nothing.

use std::rc::Rc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{
    super::{
        frames::{HEADERS, PREFACE, call_headers, frame, opening},
        stranger::Stranger,
    },
    on_lanes, on_many,
    tables::GET_CAPACITY,
};

pub(super) async fn silent(stranger: Rc<Stranger>) {
    let connections = stranger.plan.connections;
    on_many(stranger, connections, |stranger, _| say(stranger, true, Vec::new())).await;
}

pub(super) async fn half_preface(stranger: Rc<Stranger>) {
    let connections = stranger.plan.connections;
    on_many(stranger, connections, |stranger, _| say(stranger, false, PREFACE[..PREFACE.len() / 2].to_vec())).await;
}

pub(super) async fn half_headers(stranger: Rc<Stranger>) {
    let connections = stranger.plan.connections;
    let said = [opening(0), frame(HEADERS, 0, 1, &call_headers(GET_CAPACITY))].concat();
    on_many(stranger, connections, |stranger, _| say(stranger, false, said.clone())).await;
}

/// Says this, and waits until the server hangs up.
async fn say(stranger: Rc<Stranger>, barely: bool, said: Vec<u8>) {
    loop {
        let wire = if barely { stranger.connect_barely().await } else { stranger.connect().await };
        let Some(mut wire) = wire else { continue };
        let mut buffer = [0; 256];
        if wire.write_all(&said).await.is_ok() && wire.flush().await.is_ok() {
            while wire.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        }
        stranger.was_ended();
    }
}

pub(super) async fn handshakes(stranger: Rc<Stranger>) {
    on_lanes(stranger, |stranger, _| async move {
        loop {
            let Some(mut wire) = stranger.connect().await else { continue };
            let _ = wire.write_all(&opening(0)).await;
            let _ = wire.flush().await;
            // What the server begins with.
            let _ = wire.read(&mut [0; 64]).await;
        }
    })
    .await;
}
