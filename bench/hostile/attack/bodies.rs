//! Messages that never end.

use std::rc::Rc;

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::hostile::{
    attack::{on_lanes, tables::GET_CAPACITY},
    attacker::Attacker,
    caller::{Caller, WIDE, repeat},
};

const LONG: u32 = 4 << 20;

/// One act.
const ACTS: u32 = LONG / (16 << 10);

/// The prefix of a message of this length.
fn prefix(length: u32) -> Bytes {
    [&[0][..], &length.to_be_bytes()].concat().into()
}

pub(crate) async fn endless(attacker: Rc<Attacker>) {
    let part = Bytes::from([&prefix(LONG)[..], &vec![0x12; LONG as usize - 1]].concat());
    on_lanes(attacker, |attacker, _| begin_and_wait(attacker, part.clone())).await;
}

async fn begin_and_wait(attacker: Rc<Attacker>, part: Bytes) {
    loop {
        let Some(mut caller) = Caller::open(&attacker, WIDE).await else { continue };
        let mut waiting = JoinSet::new();
        while let Ok((answer, mut body)) = caller.begin(caller.post(GET_CAPACITY, &[])).await {
            let _ = body.send_data(part.clone(), false);
            let own = Rc::clone(&attacker);
            waiting.spawn_local(async move {
                let _ = own.read(answer).await;
                drop(body);
            });
            while waiting.try_join_next().is_some() {}
            attacker.acts(ACTS).await;
        }
    }
}

pub(crate) async fn long_prefix(attacker: Rc<Attacker>) {
    on_lanes(attacker, |attacker, _| {
        let own = Rc::clone(&attacker);
        repeat(attacker, WIDE, async move |caller| {
            let (answer, mut body) = caller.begin(caller.post(GET_CAPACITY, &[])).await?;
            let _ = body.send_data(prefix(u32::MAX), false);
            own.read(answer).await
        })
    })
    .await;
}
