//! A literal implementation of the documented algorithm, as an oracle: each pick visits all members.

#[derive(Debug, Clone)]
pub(super) struct NaiveSchedule {
    /// In configuration order. Removed members stay as `None`, so that indexes are never reused.
    pub(super) members: Vec<Option<NaiveMember>>,
}

#[derive(Debug, Clone)]
pub(super) struct NaiveMember {
    pub(super) factor: u64,
    pub(super) status: i128,
    pub(super) enabled: bool,
}

impl NaiveSchedule {
    pub(super) fn new() -> NaiveSchedule {
        NaiveSchedule { members: Vec::new() }
    }

    pub(super) fn add(&mut self, factor: u64, status: i64) {
        self.members.push(Some(NaiveMember { factor, status: status.into(), enabled: true }));
    }

    pub(super) fn pick(&mut self) -> Option<usize> {
        let total = self.accrue();
        let mut candidate: Option<(usize, i128)> = None;
        for (index, member) in self.usable() {
            if candidate.is_none_or(|(_, status)| member.status > status) {
                candidate = Some((index, member.status));
            }
        }
        let (index, _) = candidate?;
        self.member(index)?.status -= total;
        Some(index)
    }

    /// Disables the next member for this pick until one is accepted. Returns the members asked about and the picked
    /// one.
    pub(super) fn pick_where(&mut self, accept: impl Fn(usize) -> bool) -> (Vec<usize>, Option<usize>) {
        let mut asked = Vec::new();
        let picked = loop {
            let mut trial = self.clone();
            asked.iter().for_each(|index| trial.member(*index).expect("it was asked").enabled = false);
            let Some(candidate) = trial.pick() else { break None };
            asked.push(candidate);
            if accept(candidate) {
                asked.iter().for_each(|index| trial.member(*index).expect("it was asked").enabled = true);
                *self = trial;
                break Some(candidate);
            }
        };
        (asked, picked)
    }

    pub(super) fn force(&mut self, index: usize) -> bool {
        if !self.member(index).is_some_and(|member| member.enabled) {
            return false;
        }
        let total = self.accrue();
        self.member(index).expect("it is enabled").status -= total;
        true
    }

    pub(super) fn rescale(&mut self, index: usize, factor: u64) {
        let Some(old) = self.member(index).map(|member| member.factor).filter(|old| *old != factor) else { return };
        let (enabled, all, sum) = (self.enabled_total(), self.total(), self.enabled_sum());
        self.member(index).expect("it has a factor").factor = factor;
        let (new_enabled, new_all) = (self.enabled_total(), self.total());
        assert_ne!(old, factor);
        for member in self.members.iter_mut().flatten() {
            let (new, old) = if member.enabled { (new_enabled, enabled) } else { (new_all, all) };
            if old != 0 {
                // Integer division rounds toward 0.
                member.status = member.status * new / old;
            }
        }
        if enabled != 0 {
            let rest = sum * new_enabled / enabled - self.enabled_sum();
            if let Some(first) = self.members.iter_mut().flatten().find(|member| member.enabled) {
                first.status += rest;
            }
        }
    }

    pub(super) fn member(&mut self, index: usize) -> Option<&mut NaiveMember> {
        self.members[index].as_mut()
    }

    pub(super) fn usable(&self) -> impl Iterator<Item = (usize, &NaiveMember)> {
        let present = self.members.iter().enumerate().filter_map(|(index, member)| Some((index, member.as_ref()?)));
        present.filter(|(_, member)| member.enabled)
    }

    fn accrue(&mut self) -> i128 {
        self.members.iter_mut().flatten().filter(|member| member.enabled).for_each(|member| {
            member.status += i128::from(member.factor);
        });
        self.enabled_total()
    }

    fn enabled_total(&self) -> i128 {
        self.usable().map(|(_, member)| i128::from(member.factor)).sum()
    }

    fn enabled_sum(&self) -> i128 {
        self.usable().map(|(_, member)| member.status).sum()
    }

    fn total(&self) -> i128 {
        self.members.iter().flatten().map(|member| i128::from(member.factor)).sum()
    }
}
