//! Long work that no client waits for: pages of thousands of lines, and their compression.
//!
//! It runs on threads with a lower priority, so that threads that serve clients get the cores of a busy machine first.
//! Even a thread of low priority may use up its time slice of some milliseconds, so the work is done in
//! [parts](in_parts) and yields the core after each.

use std::thread;

use tokio::sync::{Semaphore, oneshot};

/// Maximum number of background threads. Further work waits.
const AT_A_TIME: usize = 2;
static TURNS: Semaphore = Semaphore::const_new(AT_A_TIME);

/// At this niceness other threads get about nine tenths of a contended core.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Runs `work` on a background thread. `None` if it panics.
pub(crate) async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let _turn = TURNS.acquire().await.ok()?;
    let (done, result) = oneshot::channel();
    let body = move || {
        lower_priority();
        // The caller may be gone.
        let _ = done.send(work());
    };
    thread::Builder::new().name("background".into()).spawn(body).ok()?;
    result.await.ok()
}

/// Calls `work` for each part, and yields the core after each.
pub(crate) fn in_parts<T>(parts: impl IntoIterator<Item = T>, mut work: impl FnMut(T)) {
    for part in parts {
        work(part);
        thread::yield_now();
    }
}

/// Lowers the priority of the calling thread. Only on Linux, because elsewhere that affects the process.
#[cfg(target_os = "linux")]
fn lower_priority() {
    use rustix::process::{getpriority_process, setpriority_process};

    if getpriority_process(None).is_ok_and(|nice| nice < NICE) {
        // If this fails, the work runs at the normal priority.
        let _ = setpriority_process(None, NICE);
    }
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_runs_on_another_thread_and_a_panic_is_contained() {
        let here = thread::current().id();
        assert_ne!(in_background(|| thread::current().id()).await.expect("it is done"), here);
        assert_eq!(in_background(|| panic!("planted")).await, None::<()>);
    }

    /// If this process already has a higher niceness, the thread keeps it.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_background_thread_has_a_lower_priority() {
        use rustix::process::{getpriority_process, setpriority_process};

        for own in [0, 19] {
            let starter = move || {
                let own = getpriority_process(None).unwrap().max(own);
                setpriority_process(None, own).unwrap();
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let there = runtime.block_on(in_background(|| getpriority_process(None).unwrap())).unwrap();
                assert_eq!((there, getpriority_process(None).unwrap()), (own.max(NICE), own));
            };
            thread::spawn(starter).join().unwrap();
        }
    }
}
