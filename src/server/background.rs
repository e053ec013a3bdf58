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

/// On Linux this is of the calling thread, elsewhere of the process.
fn give_way() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, NICE);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nice() -> Option<i32> {
        rustix::process::getpriority_process(None).ok()
    }

    #[tokio::test]
    async fn work_is_done_on_a_thread_that_gives_way_and_others_do_not() {
        let before = nice();
        assert_eq!(in_background(|| 7).await, Some(7));
        if cfg!(target_os = "linux") {
            assert_eq!(in_background(nice).await.flatten(), before.map(|before| before.max(NICE)));
            assert_eq!(nice(), before);
        }
        assert_eq!(in_background(|| panic!("planted")).await, None::<()>);
    }
}
