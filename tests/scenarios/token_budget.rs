//! Processes that share a budget and know the cost of a call only afterwards.

use crate::harness::{
    binary,
    config::{ConfigFile, Template},
    process::Process,
    server::Server,
    wait::eventually,
};

/// Tokens per second.
const CAPACITY: f64 = 20_000.0;
const WINDOW: f64 = 2.0;
const MAX_TOKENS: f64 = 800.0;
const WORKERS: usize = 5;

/// A line of a book: see the example `token_budget`. Times in seconds.
#[derive(Debug, Clone, Copy)]
struct BookedCall {
    asked: f64,
    had: f64,
    ended: f64,
    reserved: f64,
    used: f64,
}

fn read(line: &str) -> BookedCall {
    let numbers: Vec<f64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
    let &[asked, had, ended, reserved, used, owed] = &numbers[..] else { panic!("not a line of a book: {line}") };
    assert!(owed == 0.0, "none uses more than it has reserved");
    BookedCall { asked: asked / 1e6, had: had / 1e6, ended: ended / 1e6, reserved, used }
}

/// What all have written so far, by their ends.
fn books(workers: &[Process]) -> Vec<BookedCall> {
    let mut calls = Vec::new();
    for worker in workers {
        let ended = worker.ended();
        assert!(ended.is_none(), "a worker has ended: {}", worker.stderr());
        let written = worker.stdout();
        // The last line may be half written.
        let (lines, _) = written.rsplit_once('\n').unwrap_or_default();
        calls.extend(lines.lines().map(read));
    }
    calls.sort_by(|one, other| one.ended.total_cmp(&other.ended));
    calls
}

/// The part of the budget that was used in this span of time.
fn part_used(calls: &[BookedCall], from: f64, to: f64) -> f64 {
    let within = calls.iter().filter(|call| from < call.ended && call.ended <= to);
    within.map(|call| call.used).sum::<f64>() / (CAPACITY * (to - from))
}

#[test]
fn all_of_a_shared_budget_is_used_and_never_more_than_that() {
    let file = ConfigFile::of(&[Template { lease: 60, refresh: 1, ..Template::fair("tokens", CAPACITY) }]);
    let server = Server::with_config(&file);
    let arguments =
        [server.grpc().to_string(), "3600".to_owned(), WINDOW.to_string(), MAX_TOKENS.to_string(), "100".to_owned()];
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let example = binary::example("token_budget");
    let workers: Vec<_> = (0..WORKERS).map(|_| Process::start_program(&example, &arguments, &[])).collect();
    const SPAN: f64 = 5.0;
    let (calls, part) = eventually("nearly all of the budget is used", || {
        let calls = books(&workers);
        let (from, to) = (calls.first()?.asked, calls.last()?.ended);
        let part = part_used(&calls, to - SPAN, to);
        (to - SPAN > from && part > 0.97).then_some((calls, part))
    });
    eprintln!("{:.1} % of the budget within {SPAN} s, {} calls in all", part * 100.0, calls.len());

    // Nothing was saved when they began. What a call has used was there when it had it.
    let begun = calls.iter().map(|call| call.asked).fold(f64::INFINITY, f64::min);
    let mut used = 0.0;
    for call in &calls {
        used += call.used;
        let most = CAPACITY * (call.ended - begun);
        assert!(used <= most, "{used} of {most} after {} s", call.ended - begun);
        assert!(call.used <= call.reserved);
    }
    // And in any span: the calls that asked and had their tokens within it took them there.
    let most_saved = CAPACITY * WINDOW + WORKERS as f64 * MAX_TOKENS;
    let mut by_asked = calls;
    by_asked.sort_by(|one, other| one.asked.total_cmp(&other.asked));
    for (first, start) in by_asked.iter().enumerate().step_by(7) {
        let mut within = by_asked[first..].to_vec();
        within.sort_by(|one, other| one.had.total_cmp(&other.had));
        let mut used = 0.0;
        for call in within {
            used += call.used;
            let most = CAPACITY * (call.had - start.asked) + most_saved;
            assert!(used <= most, "{used} of {most} from {} to {}", start.asked, call.had);
        }
    }
}
