//! Where requests for a resource are laid down, and answered by whoever comes first.
//!
//! A request does not go to the actor's thread and its answer does not come back from there: whoever lays down the
//! first of a batch lets everybody else on its thread lay down theirs, and then runs the round for all of them, where
//! they are. An answer that comes from another thread costs a wake-up of that thread, and leaves alone: the connection
//! writes once for each instead of once for all. With one resource, two threads and 4 connections with 16 requests
//! each, a request made 0.36 writes to a connection and 0.33 wake-ups when it went through the mailbox; here it makes
//! 0.17 and 0.11. A service without logic makes 0.06 and none: what is left is answers to requests of the other thread.
//!
//! Of a thousand resources hardly one is asked twice at the same time. Whoever waits for others then finds none, and
//! comes back to memory that they have pushed out of the caches; so a resource that was asked alone the last times
//! answers at once, and looks now and then whether that is still so. Together with room for rounds that resources share
//! ([`super::round`]) and smaller futures of requests that saved 4 % (4 connections with 16 requests each) and 6 % (16)
//! of the server's time with a thousand resources.
//!
//! One at a time: whoever finds somebody at work leaves its batch to them, and never waits; who has worked looks
//! whether anything was laid down meanwhile before it goes. So rounds grow with the load, as they do with a mailbox,
//! and no request waits for anything but the round before. Requests are counted and bounded before they get here
//! ([`super::handle`]).

use std::{
    net::IpAddr,
    panic::{self, AssertUnwindSafe},
    sync::{Mutex, MutexGuard, TryLockError},
};

use leaseway_core::Request;

use super::{
    living::{Duties, Living},
    outbox::Reply,
    round::{Asking, Round},
};

/// So many rounds one thread runs for requests of others before it leaves them to the actor: it has connections to look
/// after.
const TURNS: usize = 8;
/// So many requests are answered in one round at the most.
const ROUND_MOST: usize = 512;
/// Whoever was asked alone so many times in a row is expected to be asked alone again.
const ALONE_AFTER: u32 = 8;
/// Every so many requests it is looked at whether that is still so, by two in a row: if one looks that was the last of
/// several, the next is the first of several.
const LOOK_EVERY: u32 = 32;
const LOOKS: u32 = 2;
/// Why the lock is never poisoned.
const CAUGHT: &str = "a panic is caught while the resource is held";

/// Requests that have not been taken up, in three lists that belong together.
#[derive(Default)]
pub(super) struct Laid {
    pub(super) requests: Vec<Request>,
    /// Where each came from, if that is known.
    pub(super) origins: Vec<Option<IpAddr>>,
    pub(super) replies: Vec<Reply>,
    /// How many rounds in a row were for one request.
    alone: u32,
}

impl Laid {
    /// Whether a request is likely to be the only one.
    fn expects_nobody(&self) -> bool {
        self.requests.is_empty() && self.alone >= ALONE_AFTER && self.alone % LOOK_EVERY >= LOOKS
    }

    /// What is laid down becomes a round. It is moved, not swapped: or the room that one busy resource needs would be
    /// left behind at all the others, one after the other.
    pub(super) fn hand_over(&mut self, round: &mut Round) {
        self.alone = if self.requests.len() == 1 { self.alone.wrapping_add(1) } else { 0 };
        round.requests.append(&mut self.requests);
        round.replies.append(&mut self.replies);
    }
}

/// What comes of a request that was brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Somebody else runs the round.
    Wait,
    /// Run it, after those who are about to lay down theirs.
    Lead,
    /// The round has been run.
    Done(Left),
}

/// What is left to the actor when somebody has served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    /// See [`Desk::take_duties`].
    Duties,
    /// Besides, requests are laid down that nobody looks after. Never of a life that is over.
    More,
}

pub(super) struct Desk {
    laid: Mutex<Laid>,
    life: Mutex<Life>,
}

/// One life of a resource.
enum Life {
    /// To begin with whoever needs it first, not with whoever creates it: what it inherits may be long.
    Unborn(Box<dyn FnOnce() -> Living + Send>),
    Lives(Box<Living>),
    Over,
}

impl Desk {
    pub(super) fn new(begin: impl FnOnce() -> Living + Send + 'static) -> Desk {
        Desk { laid: Mutex::default(), life: Mutex::new(Life::Unborn(Box::new(begin))) }
    }

    fn laid(&self) -> MutexGuard<'_, Laid> {
        self.laid.lock().expect("nobody panics while holding what is laid down")
    }

    /// Lays down a request, unless it can be answered at once.
    pub(super) fn bring(&self, asking: Asking) -> Turn {
        let mut laid = self.laid();
        if laid.expects_nobody()
            && let Some(life) = self.take_turn()
        {
            laid.alone = laid.alone.wrapping_add(1);
            drop(laid);
            return Turn::Done(self.work(life, Some(asking)));
        }
        laid.requests.push(asking.request);
        laid.origins.push(asking.from);
        laid.replies.push(asking.reply);
        match laid.requests.len() {
            1 => Turn::Lead,
            ROUND_MOST.. => {
                drop(laid);
                Turn::Done(self.serve())
            }
            _ => Turn::Wait,
        }
    }

    /// Unless somebody is at work.
    fn take_turn(&self) -> Option<MutexGuard<'_, Life>> {
        match self.life.try_lock() {
            Ok(life) => Some(life),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => unreachable!("{CAUGHT}"),
        }
    }

    /// Answers what is laid down, unless somebody is at work: they will see it.
    ///
    /// Nothing is forgotten: whoever lays down something after the other has looked for the last time finds the
    /// resource free.
    pub(super) fn serve(&self) -> Left {
        self.take_turn().map_or(Left::Nothing, |life| self.work(life, None))
    }

    /// Answers what is laid down, but `first` a request that is not.
    fn work<'a>(&'a self, mut life: MutexGuard<'a, Life>, mut first: Option<Asking>) -> Left {
        let mut turns = 0;
        loop {
            let left = self.attempt(&mut life, |living| {
                Round::lend(|round| {
                    match first.take() {
                        Some(asking) => living.take_up_alone(asking, round),
                        None => living.take_up(&mut self.laid(), round),
                    }
                    living.round(round);
                });
                if living.duties().is_empty() { Left::Nothing } else { Left::Duties }
            });
            // A life that is over does not even take it up.
            first = None;
            drop(life);
            if !self.is_waited_for() {
                // The actor of a life that is over has to hear of it.
                return left.unwrap_or(Left::Duties);
            }
            // A life that is over leaves nothing to its actor, which may be gone; and letting go takes no time.
            turns += usize::from(left.is_some());
            if turns == TURNS {
                return Left::More;
            }
            let Some(next) = self.take_turn() else { return Left::Nothing };
            life = next;
        }
    }

    /// Does something else with the resource, after the round under way; nothing if this life is over, or is with this.
    /// Whoever calls this must [`serve`](Self::serve) next.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Living) -> T) -> Option<T> {
        self.attempt(&mut self.life.lock().expect(CAUGHT), work)
    }

    /// Whether requests are laid down.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.laid().requests.is_empty()
    }

    /// What the actor has to do; nothing if this life is over, and then nobody waits for it any more. Otherwise whoever
    /// calls this must look whether anybody [waits](Self::is_waited_for) next.
    pub(super) fn take_duties(&self) -> Option<Duties> {
        let duties = match &mut *self.life.lock().expect(CAUGHT) {
            Life::Unborn(_) => Some(Duties::default()),
            Life::Lives(living) => Some(std::mem::take(living.duties())),
            Life::Over => None,
        };
        if duties.is_none() {
            // Whoever came while it was held found somebody at work, and relies on them; nobody comes after them.
            self.serve();
        }
        duties
    }

    /// Should the work panic, or end this life, whoever waits for the resource is let go, and tries with its next life.
    fn attempt<T>(&self, life: &mut Life, work: impl FnOnce(&mut Living) -> T) -> Option<T> {
        // Nobody sees what a panic has left half done: it is dropped.
        let before = std::mem::replace(life, Life::Over);
        let done = panic::catch_unwind(AssertUnwindSafe(move || {
            let mut living = match before {
                Life::Unborn(begin) => Box::new(begin()),
                Life::Lives(living) => living,
                Life::Over => return None,
            };
            let done = work(&mut living);
            (!living.is_over()).then_some((living, done))
        }));
        if let Ok(Some((living, done))) = done {
            *life = Life::Lives(living);
            return Some(done);
        }
        // Whoever is let go may be back at once.
        let waited = std::mem::take(&mut *self.laid());
        drop(waited);
        None
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc, Weak,
            atomic::{AtomicUsize, Ordering},
        },
        task::{Context, Wake, Waker},
    };

    use leaseway_core::{HolderKind, Release};
    use tokio::sync::oneshot::{self, Receiver, error::TryRecvError};

    use super::*;

    type Answered = Receiver<Result<leaseway_core::Answer, super::super::outbox::Lapsed>>;

    /// One whose life has ended with its first round.
    fn over() -> Arc<Desk> {
        let desk = Arc::new(Desk::new(|| panic!("a planted fault")));
        assert!(desk.with(|_| ()).is_none());
        desk
    }

    fn lay(desk: &Desk) -> Answered {
        let (reply, answer) = oneshot::channel();
        let release = Release { kind: HolderKind::Client, id: "a".into(), token: None };
        desk.bring(Asking { request: Request::Release(release), from: None, reply });
        answer
    }

    /// Whoever is let go lays down another request at once, so many times.
    struct Again {
        desk: Weak<Desk>,
        left: AtomicUsize,
        answer: Mutex<Option<Answered>>,
    }

    impl Wake for Again {
        fn wake(self: Arc<Self>) {
            let Some(desk) = self.desk.upgrade() else { return };
            if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                let mut answer = lay(&desk);
                let waker = Waker::from(Arc::clone(&self));
                assert!(std::pin::Pin::new(&mut answer).poll(&mut Context::from_waker(&waker)).is_pending());
                *self.answer.lock().expect("nobody panics") = Some(answer);
            }
        }
    }

    #[test]
    fn whoever_comes_while_the_actor_sees_that_a_life_is_over_is_let_go() {
        let desk = over();
        let held = desk.life.lock().expect(CAUGHT);
        let mut answer = lay(&desk);
        assert_eq!(desk.serve(), Left::Nothing, "somebody is at work");
        drop(held);
        assert!(desk.take_duties().is_none());
        assert_eq!(answer.try_recv().err(), Some(TryRecvError::Closed));
    }

    #[test]
    fn the_room_that_a_busy_resource_needs_is_not_left_at_others() {
        let (mut laid, mut round) = (Laid::default(), Round::default());
        round.requests.reserve(ROUND_MOST);
        round.replies.reserve(ROUND_MOST);
        let (reply, _) = oneshot::channel();
        laid.requests.push(Request::Release(Release { kind: HolderKind::Client, id: "a".into(), token: None }));
        laid.replies.push(reply);
        laid.hand_over(&mut round);
        assert_eq!((round.requests.len(), round.replies.len()), (1, 1));
        assert!(laid.requests.capacity() < ROUND_MOST && laid.replies.capacity() < ROUND_MOST);
    }

    #[test]
    fn a_life_that_is_over_leaves_nobody_to_its_actor() {
        let desk = over();
        let again = Again { desk: Arc::downgrade(&desk), left: AtomicUsize::new(5 * TURNS), answer: Mutex::default() };
        let again = Arc::new(again);
        Arc::clone(&again).wake();
        assert_ne!(desk.serve(), Left::More);
        assert_eq!(again.left.load(Ordering::Relaxed), 0);
        assert!(!desk.is_waited_for());
    }
}
