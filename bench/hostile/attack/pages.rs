//! Attacks on the listener for pages.

use std::{rc::Rc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::sleep,
};

use crate::{
    hostile::{
        attack::{
            on_lanes, on_many,
            tables::{GET_CAPACITY, asks, entries},
        },
        attacker::Attacker,
        caller::{Caller, WIDE},
    },
    load::connection::framed,
};

/// More connections than may be open.
const CONNECTIONS: u32 = 400;

/// The pause between two bytes.
const SLOWLY: Duration = Duration::from_millis(100);

pub(crate) async fn scrapes(attacker: Rc<Attacker>) {
    let message = framed(&asks("filler".into(), entries(&"\u{1b}[31m\n".repeat(40), 0..1000)));
    loop {
        let Some(mut caller) = Caller::open(&attacker, WIDE).await else { continue };
        if caller.ask(caller.post(GET_CAPACITY, &[]), message.clone()).await.is_ok() {
            break;
        }
    }
    on_lanes(attacker, |attacker, _| async move {
        loop {
            let Some(mut wire) = attacker.connect_to_pages().await else { continue };
            let _ = wire.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
            let _ = wire.flush().await;
            let mut buffer = vec![0; 1 << 16];
            while wire.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        }
    })
    .await;
}

pub(crate) async fn slow(attacker: Rc<Attacker>) {
    on_many(attacker, CONNECTIONS, |attacker, _| async move {
        loop {
            let Some(mut wire) = attacker.connect_to_pages().await else { continue };
            let head = b"GET /metrics HTTP/1.1\r\nHost: ".iter().chain(std::iter::repeat(&b'h'));
            for byte in head {
                attacker.acts(1).await;
                if wire.write_all(&[*byte]).await.is_err() || wire.flush().await.is_err() {
                    attacker.was_ended();
                    break;
                }
                sleep(SLOWLY).await;
            }
        }
    })
    .await;
}
