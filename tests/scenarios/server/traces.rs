//! Traces, of a binary with the feature `otlp`.

use leaseway_proto::doorman::GetCapacityRequest;
use tonic::Request;

use crate::harness::{
    collector::{Collector, Span},
    doorman::{entry, request},
    foreign, http,
    server::Server,
    wait::{block_on, eventually},
};

/// A `traceparent` header.
fn traceparent(trace: u8, is_sampled: bool) -> String {
    format!("00-{}-{}-{}", format!("{trace:02x}").repeat(16), "5a".repeat(8), if is_sampled { "01" } else { "00" })
}

fn of_trace(collector: &Collector, trace: u8) -> Vec<Span> {
    collector.spans().into_iter().filter(|span| span.trace_id == [trace; 16]).collect()
}

#[test]
#[cfg_attr(not(otlp), ignore = "needs LEASEWAY_TEST_OTLP")]
fn a_request_becomes_a_span_of_its_callers_trace() {
    let collector = Collector::start();
    let endpoint = format!("http://{}", collector.address());
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint), ("OTEL_BSP_SCHEDULE_DELAY", "50")];
    let server = Server::of(&foreign::path("LEASEWAY_TEST_OTLP"), &["--id", "the one"], &variables);
    let ask = |trace, is_sampled| {
        let mut asked: Request<GetCapacityRequest> = Request::new(request("alice", vec![entry("r", 1.0)]));
        asked.metadata_mut().insert("traceparent", traceparent(trace, is_sampled).parse().unwrap());
        block_on(server.doorman().inner().get_capacity(asked)).unwrap();
    };
    ask(1, false);
    ask(2, true);
    http::get_with(server.http(), "/healthz", &format!("traceparent: {}\r\n", traceparent(3, true)));
    for (trace, name) in [(2, "doorman.Capacity/GetCapacity"), (3, "GET")] {
        let spans = eventually("the span arrives", || Some(of_trace(&collector, trace)).filter(|all| !all.is_empty()));
        let [span] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((&*span.name, &*span.parent_span_id, span.kind), (name, &[0x5a; 8][..], 2), "kind 2: a server span");
        assert!(span.start > 0 && span.end >= span.start, "{span:?}");
    }
    assert_eq!(collector.attribute("service.name").as_deref(), Some("leaseway"));
    assert_eq!(collector.attribute("service.instance.id").as_deref(), Some("the one"));
    // A server sends its last spans before it stops.
    ask(4, true);
    assert_eq!(server.stop().code, Some(0));
    assert_eq!(of_trace(&collector, 4).len(), 1);
    assert_eq!(of_trace(&collector, 1), [], "the caller did not sample this trace");
}
