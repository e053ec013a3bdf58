//! Callers with invalid credentials.

use std::rc::Rc;

use crate::{
    hostile::{
        attack::{
            on_lanes,
            tables::{GET_CAPACITY, asks, entries},
        },
        attacker::Attacker,
        caller::{WIDE, repeat},
    },
    load::connection::framed,
};

pub(crate) async fn unknown(attacker: Rc<Attacker>) {
    with_tokens(attacker, |n| format!("attacker-{n:032}")).await;
}

/// `{"alg":"ES256","kid":"1"}` and `{"sub":"alice","iss":"bench","aud":"bench","exp":9999999999}`, followed by a
/// signature of 64 bytes.
const JWT: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6IjEifQ.\
                   eyJzdWIiOiJhbGljZSIsImlzcyI6ImJlbmNoIiwiYXVkIjoiYmVuY2giLCJleHAiOjk5OTk5OTk5OTl9";

pub(crate) async fn wrongly_signed(attacker: Rc<Attacker>) {
    // 86 digits of base64 are 64 bytes and four bits that have to be 0.
    with_tokens(attacker, |n| format!("{JWT}.{n:085}A")).await;
}

async fn with_tokens(attacker: Rc<Attacker>, token: fn(u64) -> String) {
    let message = framed(&asks("alice".into(), entries("", 0..1)));
    on_lanes(attacker, |attacker, lane| {
        let (message, mut n) = (message.clone(), u64::from(lane) << 32);
        repeat(attacker, WIDE, async move |caller| {
            n += 1;
            let bearer = format!("Bearer {}", token(n));
            caller.ask(caller.post(GET_CAPACITY, &[("authorization", &bearer)]), message.clone()).await
        })
    })
    .await;
}
