//! Repairs at opening, and their report.
//!
//! A row is removed only if it certainly belongs to nothing. A message whose conversation existed and is
//! missing is kept and reported: it is evidence of damage and may be all that is left. If the rows of one conversation
//! contradict each other, its group is quarantined. Any other contradiction refuses the database.

use super::change::Change;
use crate::catalog::Catalog;
use std::fmt;
use std::sync::Arc;

/// Rows that contradicted the others when a database was opened, and their repair.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repair {
    /// The table.
    pub table: &'static str,
    /// How many rows.
    pub rows: u64,
    /// The contradiction and the repair.
    pub what: &'static str,
    /// The first of them.
    pub example: String,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} rows: {}; the first is {}", self.table, self.rows, self.what, self.example)
    }
}

/// Rows of one kind that are named singly.
const MOST_NAMED: usize = 100;

/// The repairs of one opening.
#[derive(Debug, Default)]
pub struct Repairs(Vec<Repair>);

impl Repairs {
    /// Notes one row.
    pub fn note(&mut self, table: &'static str, what: &'static str, example: impl fmt::Display) {
        match self.0.iter_mut().find(|repair| repair.table == table && repair.what == what) {
            Some(repair) => repair.rows += 1,
            None => self.0.push(Repair { table, rows: 1, what, example: example.to_string() }),
        }
    }

    /// Records one row by itself, so that each is named; beyond a bound they are counted together.
    pub fn each(&mut self, table: &'static str, what: &'static str, example: impl fmt::Display) {
        let is_like = |repair: &&Repair| repair.table == table && repair.what == what;
        if self.0.iter().filter(is_like).count() < MOST_NAMED {
            self.0.push(Repair { table, rows: 1, what, example: example.to_string() });
        } else if let Some(last) = self.0.iter_mut().rfind(|repair| repair.table == table && repair.what == what) {
            last.rows += 1;
        }
    }

    /// Adds the repairs of another part.
    pub fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// All of them.
    pub fn into_list(self) -> Vec<Repair> {
        self.0
    }
}

/// Mends definitions; returns the damage that makes the database unusable, if any.
pub(super) fn mend_catalog(catalog: &mut Catalog, changes: &mut Vec<Change>, repairs: &mut Repairs) -> Option<String> {
    // Service Broker's own services have no queue: their number is 0.
    let has_queue = |id: i32| id == 0 || catalog.queues.contains_key(&id);
    if let Some(service) = catalog.services.values().find(|service| !has_queue(service.queue_id)) {
        return Some(format!("service '{}' names queue {}, which does not exist", service.name, service.queue_id));
    }
    let gone = |id: &i32, known: bool| (!known).then_some(*id);
    let notifications: Vec<i32> = catalog
        .event_notifications
        .iter()
        .filter_map(|(id, notification)| gone(id, catalog.queues.contains_key(&notification.queue_id)))
        .collect();
    for id in notifications {
        let Some(notification) = catalog.event_notifications.remove(&id) else { continue };
        changes.push(Change::DeleteEventNotification(id));
        repairs.note("dialoq_event_notification", "its queue does not exist; removed", &notification.name);
    }
    let priorities: Vec<i32> = catalog
        .priorities
        .iter()
        .filter_map(|(id, priority)| {
            let has_contract = priority.contract_id.is_none_or(|id| catalog.contracts.contains_key(&id));
            let has_service = priority.local_service_id.is_none_or(|id| catalog.services.contains_key(&id));
            gone(id, has_contract && has_service)
        })
        .collect();
    for id in priorities {
        let Some(priority) = catalog.priorities.remove(&id) else { continue };
        changes.push(Change::DeletePriority(id));
        let what = "its contract or service does not exist, so that it never counts; removed";
        repairs.note("dialoq_conversation_priority", what, &priority.name);
    }
    let schedules: Vec<i32> = catalog
        .work_schedules
        .iter()
        .filter_map(|(id, schedule)| gone(id, catalog.work_queues.contains_key(&schedule.queue_id)))
        .collect();
    for id in schedules {
        let Some(schedule) = catalog.work_schedules.remove(&id) else { continue };
        changes.push(Change::DeleteWorkSchedule(id));
        repairs.note("dialoq_work_schedule", "its work queue does not exist; removed", &schedule.name);
    }
    for service in catalog.services.values_mut() {
        if service.contract_ids.iter().all(|id| catalog.contracts.contains_key(id)) {
            continue;
        }
        let mended = Arc::make_mut(service);
        mended.contract_ids.retain(|id| catalog.contracts.contains_key(id));
        let what = "it names a contract that does not exist; removed from the service";
        repairs.note("dialoq_service_contract_usage", what, format!("of service '{}'", mended.name));
        changes.push(Change::PutService(service.clone()));
    }
    let next = highest_id(catalog).saturating_add(1);
    if catalog.settings.next_object_id < next {
        let what = "the next object id was in use; raised";
        repairs.note("dialoq_broker", what, catalog.settings.next_object_id);
        catalog.settings.next_object_id = next;
        changes.push(Change::PutSettings(catalog.settings));
    }
    None
}

fn highest_id(catalog: &Catalog) -> i32 {
    let last = [
        catalog.message_types.keys().next_back(),
        catalog.contracts.keys().next_back(),
        catalog.queues.keys().next_back(),
        catalog.services.keys().next_back(),
        catalog.priorities.keys().next_back(),
        catalog.xml_schema_collections.keys().next_back(),
        catalog.event_notifications.keys().next_back(),
        catalog.work_queues.keys().next_back(),
        catalog.work_schedules.keys().next_back(),
    ];
    last.into_iter().flatten().copied().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_kind_are_counted_together_and_the_list_of_names_is_bounded() {
        let mut repairs = Repairs::default();
        for (table, what, example) in [("a", "x", 1), ("a", "y", 2), ("b", "x", 3), ("a", "x", 4), ("b", "x", 5)] {
            repairs.note(table, what, example);
        }
        let mut others = Repairs::default();
        for example in 0..MOST_NAMED {
            others.each("c", "x", example);
        }
        others.each("c", "y", "alone");
        others.each("d", "x", "alone");
        for example in 0..3 {
            others.each("c", "x", example);
        }
        repairs.append(others);
        let list = repairs.into_list();
        let rows: Vec<_> = list.iter().map(|repair| (repair.table, repair.what, repair.rows)).collect();
        assert_eq!(rows[..4], [("a", "x", 2), ("a", "y", 1), ("b", "x", 2), ("c", "x", 1)]);
        assert_eq!(rows[MOST_NAMED + 1..], [("c", "x", 1), ("c", "x", 4), ("c", "y", 1), ("d", "x", 1)]);
        assert_eq!(list[0].to_string(), "a, 2 rows: x; the first is 1");
    }
}
