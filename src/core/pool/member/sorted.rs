//! Sorted sets of members, with the first or last member overall, of one principal, of all other principals, or among
//! members that use capacity.

use std::collections::BTreeSet;

use crate::types::Principal;

#[derive(Debug)]
pub(crate) struct BusyIdleSet<P> {
    busy: BTreeSet<P>,
    idle: BTreeSet<P>,
}

impl<P> Default for BusyIdleSet<P> {
    fn default() -> BusyIdleSet<P> {
        BusyIdleSet { busy: BTreeSet::new(), idle: BTreeSet::new() }
    }
}

impl<P: Ord + Copy> BusyIdleSet<P> {
    pub(crate) fn insert(&mut self, place: P, is_busy: bool) {
        if is_busy {
            self.busy.insert(place)
        } else {
            self.idle.insert(place)
        };
    }

    pub(crate) fn remove(&mut self, place: P) {
        let _ = self.busy.remove(&place) || self.idle.remove(&place);
    }

    pub(crate) fn len(&self) -> usize {
        self.busy.len() + self.idle.len()
    }

    pub(crate) fn last(&self) -> Option<P> {
        self.busy.last().max(self.idle.last()).copied()
    }

    /// The members that use capacity, in order.
    pub(crate) fn busy(&self) -> impl DoubleEndedIterator<Item = P> {
        self.busy.iter().copied()
    }

    pub(crate) fn last_busy(&self) -> Option<P> {
        self.busy.last().copied()
    }
}

/// Which members are considered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrincipalFilter {
    Any,
    Only(Principal),
    Except(Principal),
}

/// Members in order, and grouped by principal.
#[derive(Debug)]
pub(crate) struct ByPrincipal<P> {
    /// `None` is a lower bound for the members of a principal.
    members: BTreeSet<(Principal, Option<P>)>,
    /// The first member of each principal.
    firsts: BTreeSet<(P, Principal)>,
}

impl<P> Default for ByPrincipal<P> {
    fn default() -> ByPrincipal<P> {
        ByPrincipal { members: BTreeSet::new(), firsts: BTreeSet::new() }
    }
}

impl<P: Ord + Copy> ByPrincipal<P> {
    pub(crate) fn insert(&mut self, principal: Principal, member: P) {
        let before = self.first_of(principal);
        self.members.insert((principal, Some(member)));
        if before.is_none_or(|first| member < first) {
            if let Some(first) = before {
                self.firsts.remove(&(first, principal));
            }
            self.firsts.insert((member, principal));
        }
    }

    pub(crate) fn remove(&mut self, principal: Principal, member: P) -> bool {
        let was_there = self.members.remove(&(principal, Some(member)));
        if self.firsts.remove(&(member, principal))
            && let Some(next) = self.first_of(principal)
        {
            self.firsts.insert((next, principal));
        }
        was_there
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn first(&self, filter: PrincipalFilter) -> Option<P> {
        match filter {
            PrincipalFilter::Any => self.firsts.first().map(|(first, _)| *first),
            PrincipalFilter::Only(principal) => self.first_of(principal),
            // At most one principal is skipped.
            PrincipalFilter::Except(than) => {
                self.firsts.iter().find(|(_, other)| *other != than).map(|(first, _)| *first)
            }
        }
    }

    fn first_of(&self, principal: Principal) -> Option<P> {
        let (of, member) = self.members.range((principal, None)..).next()?;
        member.filter(|_| *of == principal)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_is_that_of_a_plain_set(
            steps in prop::collection::vec((any::<bool>(), 0_u32..4, 0_u32..20), 0..100),
        ) {
            let (mut by_principal, mut plain) = (ByPrincipal::default(), BTreeSet::new());
            for (inserts, principal, member) in steps {
                let principal = Principal(principal);
                // A member has one principal.
                if inserts && plain.iter().all(|(other, _)| *other != member) {
                    by_principal.insert(principal, member);
                    plain.insert((member, principal));
                } else {
                    prop_assert_eq!(by_principal.remove(principal, member), plain.remove(&(member, principal)));
                }
                let first = |may: &dyn Fn(Principal) -> bool| plain.iter().find(|(_, of)| may(*of)).map(|(at, _)| *at);
                prop_assert_eq!((by_principal.len(), by_principal.first(PrincipalFilter::Any)), (plain.len(), first(&|_| true)));
                for principal in (0..4).map(Principal) {
                    prop_assert_eq!(by_principal.first(PrincipalFilter::Only(principal)), first(&|of| of == principal));
                    prop_assert_eq!(by_principal.first(PrincipalFilter::Except(principal)), first(&|of| of != principal));
                }
            }
        }
    }
}
