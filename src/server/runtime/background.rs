//! Work that takes long and that no client waits for: pages of thousands of lines, and their compression.
//!
//! It is done on threads of its own, of a lower priority: on a machine whose cores are busy a thread that serves
//! clients takes the core of one of these when it has something to do. The scheduler lets a slice of some milliseconds
//! end first, at any priority: so the work is done in [parts](in_parts), after each of which the core is free.

use std::thread;

use tokio::sync::{Semaphore, oneshot};

/// So much is done at a time. The rest waits: many pages take no more of the machine than a few.
const AT_A_TIME: usize = 2;
static TURNS: Semaphore = Semaphore::const_new(AT_A_TIME);

/// As much as nine of ten parts of a core go to others, if they need it.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Does it, and waits for that. None if it failed.
pub(crate) async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let _turn = TURNS.acquire().await.ok()?;
    let (done, result) = oneshot::channel();
    let body = move || {
        give_way();
        // What has asked for it may be gone.
        let _ = done.send(work());
    };
    thread::Builder::new().name("background".into()).spawn(body).ok()?;
    result.await.ok()
}

/// Gives the core to another thread after each part.
pub(crate) fn in_parts<T>(parts: impl IntoIterator<Item = T>, mut work: impl FnMut(T)) {
    for part in parts {
        work(part);
        thread::yield_now();
    }
}

/// Lowers the priority of the calling thread, if it is not as low already. Only on Linux: elsewhere it would be that of
/// the process.
#[cfg(target_os = "linux")]
fn give_way() {
    use rustix::process::{getpriority_process, setpriority_process};

    if getpriority_process(None).is_ok_and(|nice| nice < NICE) {
        // A thread that cannot give way does its work all the same.
        let _ = setpriority_process(None, NICE);
    }
}

#[cfg(not(target_os = "linux"))]
fn give_way() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_on_another_thread_and_its_failure_ends_that_only() {
        let here = thread::current().id();
        assert_ne!(in_background(|| thread::current().id()).await.expect("it is done"), here);
        assert_eq!(in_background(|| panic!("planted")).await, None::<()>);
    }

    #[cfg(target_os = "linux")]
    mod on_linux {
        use rustix::process::{getpriority_process, setpriority_process};

        use super::*;

        /// The priority of a background thread that is started by one of priority `own`, or of a lower one if the tests
        /// run at that; and the priority of the starter afterwards.
        fn started_at(own: i32) -> (i32, i32, i32) {
            let started = move || {
                let lowered = getpriority_process(None).unwrap().max(own);
                setpriority_process(None, lowered).unwrap();
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let there = runtime.block_on(in_background(|| getpriority_process(None).unwrap())).unwrap();
                (lowered, there, getpriority_process(None).unwrap())
            };
            thread::spawn(started).join().unwrap()
        }

        #[test]
        fn a_background_thread_gives_way_and_others_do_not() {
            let (own, there, after) = started_at(0);
            assert_eq!((there, after), (own.max(NICE), own));
        }

        #[test]
        fn a_thread_of_the_lowest_priority_starts_none_of_a_higher() {
            assert_eq!(started_at(19), (19, 19, 19));
        }
    }
}
