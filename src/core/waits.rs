//! Which session holds and waits for which conversation group, as text: for a test that does not end.

use super::group::GroupKey;
use super::session::Session;
use super::state::Core;

impl Core {
    /// One line for each locked group and each session that waits.
    pub fn describe_waits(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (_, group) in self.groups.iter().filter(|(_, group)| group.owner != 0) {
            let members: Vec<String> = group
                .members
                .iter()
                .map(|member| format!("{} {}", self.endpoints[*member].handle, self.endpoints[*member].state.code()))
                .collect();
            lines.push(format!(
                "group {} of service {} and queue {} is held by session {}; conversations: {}",
                group.id,
                group.service_id,
                group.queue_id,
                group.owner,
                members.join(", ")
            ));
        }
        for (session, waited_for) in self.sessions.iter() {
            if let Some(group) = waited_for {
                lines.push(format!("session {session} waits for {}", self.describe_group(GroupKey(*group))));
            }
        }
        lines
    }

    /// The group's id and the session that holds it.
    pub fn describe_group(&self, group: GroupKey) -> String {
        match self.groups.get(group.0) {
            Some(found) => format!("group {}, held by session {}", found.id, found.owner),
            None => "a group that is gone".to_owned(),
        }
    }
}

impl Session {
    /// The session's number and how much it has done, for [`Core::describe_waits`].
    pub fn describe(&self) -> String {
        format!("session {} with {} groups locked and {} operations", self.id, self.locks.len(), self.log.len())
    }
}
