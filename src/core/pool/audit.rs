//! Recomputes the sums of a pool from its members.

use super::*;

/// An amount of a member.
type OfMember<'a> = &'a dyn Fn(&Member) -> Amount;

impl Pool {
    /// Checks that all sums and orders agree with the members, and that no waiting member would fit. (With many waiting
    /// members one that fits may remain untried; test histories have few.)
    pub(crate) fn audit(&self) -> Result<(), String> {
        let all =
            || self.members.iter().enumerate().filter_map(|(slot, member)| Some((slot as u32, member.as_deref()?)));
        let sum = |of: OfMember<'_>| all().map(|(_, member)| of(member)).collect::<Sum>();
        let same = |what: &str, found: Sum, expected: Sum| {
            if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, expected {expected:?}")) }
        };
        same("targets", self.priority.placed(), sum(&|member| member.target))?;
        let connected = |member: &Member| if member.is_connected() { member.target } else { Amount::ZERO };
        same("connected targets", self.priority.connected(), sum(&connected))?;
        same("used", self.used, sum(&|member| member.used))?;
        same("uses", self.uses, sum(&|member| member.uses))?;
        same("wanted", self.priority.wanted(), sum(&|member| member.demand.wanted.saturating_sub(member.target)))?;
        same("idle", self.idle, sum(&|member| member.idle))?;
        self.audit_nodes(&sum)?;
        let members_of_bands: usize = all().map(|(_, member)| member.demand.reported_claims.len()).sum();
        if (members_of_bands == 0) != self.bands.is_empty() {
            return Err("bands".into());
        }
        if self.learning || !self.has_begun {
            return Ok(());
        }
        let wrong_target = all().find(|(_, member)| member.target > member.demand.wanted);
        if let Some((slot, member)) = wrong_target {
            return Err(format!("{slot}: {member:?} may have more than it wants"));
        }
        Ok(())
    }

    /// Checks the sums over child nodes that ask for places.
    fn audit_nodes(&self, sum: &dyn Fn(OfMember<'_>) -> Sum) -> Result<(), String> {
        let of_node = |amount: Amount, member: &Member| if member.node_places() > 0 { amount } else { Amount::ZERO };
        let found = [
            self.free.sums_of_nodes(),
            [
                sum(&|member| of_node(member.granted, member)),
                sum(&|member| of_node(member.target, member)),
                sum(&|member| of_node(member.used, member)),
            ],
        ];
        if found[0] == found[1] { Ok(()) } else { Err(format!("nodes: {found:?}")) }
    }
}
