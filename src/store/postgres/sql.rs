//! Every text of `sql/postgres`, in the order in which they can be made.

use crate::store::server::dialect::{Dialect, Install, Reads, Script};
use crate::store::store_texts;

macro_rules! text {
    ($file:expr) => {
        include_str!(concat!("../../../sql/postgres/", $file))
    };
}

macro_rules! scripts {
    ($($name:literal)*) => {
        &[$(Script { name: $name, text: text!($name) }),*]
    };
}

const SCHEMA: &[Script] = scripts! {
    "schema/0001_broker.sql"
    "schema/0002_checks.sql"
};

const LOGIC: &[Script] = scripts! {
    "verbs/begin_attempt.sql"
    "verbs/begin_conversation_timer.sql"
    "verbs/begin_dialog_conversation.sql"
    "verbs/claim_unit.sql"
    "verbs/commit_attempt.sql"
    "verbs/configure.sql"
    "verbs/count_rollback.sql"
    "verbs/define_begin.sql"
    "verbs/define_end.sql"
    "verbs/end_conversation.sql"
    "verbs/follow.sql"
    "verbs/get_conversation_group.sql"
    "verbs/get_transmission_status.sql"
    "verbs/hold_presence.sql"
    "verbs/internal_attempt.sql"
    "verbs/internal_base.sql"
    "verbs/internal_check.sql"
    "verbs/internal_delivery.sql"
    "verbs/internal_end.sql"
    "verbs/internal_endpoint.sql"
    "verbs/internal_event.sql"
    "verbs/internal_lock.sql"
    "verbs/internal_open.sql"
    "verbs/internal_ready.sql"
    "verbs/internal_receive.sql"
    "verbs/internal_send.sql"
    "verbs/internal_step.sql"
    "verbs/look.sql"
    "verbs/move_conversation.sql"
    "verbs/post_queue_activation.sql"
    "verbs/put_conversation_priority.sql"
    "verbs/put_event_notification.sql"
    "verbs/put_message_type.sql"
    "verbs/put_queue_monitor.sql"
    "verbs/put_service.sql"
    "verbs/put_service_contract.sql"
    "verbs/put_service_queue.sql"
    "verbs/put_settings.sql"
    "verbs/put_xml_schema_collection.sql"
    "verbs/receive.sql"
    "verbs/receive_batch.sql"
    "verbs/record_installation.sql"
    "verbs/release_quarantine.sql"
    "verbs/reprioritise.sql"
    "verbs/send.sql"
    "verbs/send_batch.sql"
    "verbs/send_many.sql"
    "verbs/take_reader_slot.sql"
    "verbs/tell.sql"
    "verbs/tick.sql"
    "verbs/unit_happened.sql"
    "views/live_process.sql"
    "views/noted.sql"
    "views/queue_messages.sql"
    "views/read_definitions.sql"
    "views/sys_conversation_endpoints.sql"
    "views/sys_conversation_groups.sql"
    "views/sys_conversation_priorities.sql"
    "views/sys_databases.sql"
    "views/sys_dm_broker_activated_tasks.sql"
    "views/sys_dm_broker_queue_monitors.sql"
    "views/sys_remote_service_bindings.sql"
    "views/sys_routes.sql"
    "views/sys_service_contract_message_usages.sql"
    "views/sys_service_contract_usages.sql"
    "views/sys_service_contracts.sql"
    "views/sys_service_message_types.sql"
    "views/sys_service_queues.sql"
    "views/sys_services.sql"
    "views/sys_transmission_queue.sql"
    "roles.sql"
};

/// The SQL of PostgreSQL.
pub static DIALECT: Dialect = Dialect {
    name: "postgres",
    schema: SCHEMA,
    logic: LOGIC,
    drop: text!("drop.sql"),
    has_batches: false,
    install: Install {
        standing: text!("install/standing.sql"),
        version: text!("install/version.sql"),
        lock: text!("install/lock.sql"),
        begin: text!("install/begin.sql"),
        clear: text!("install/clear.sql"),
        script: text!("install/script.sql"),
        call: text!("install/call.sql"),
        stop: "",
    },
    reads: Reads {
        broker: text!("read/broker.sql"),
        message_types: text!("read/message_types.sql"),
        service_contracts: text!("read/service_contracts.sql"),
        service_contract_message_usages: text!("read/service_contract_message_usages.sql"),
        service_queues: text!("read/service_queues.sql"),
        services: text!("read/services.sql"),
        service_contract_usages: text!("read/service_contract_usages.sql"),
        conversation_priorities: text!("read/conversation_priorities.sql"),
        xml_schema_collections: text!("read/xml_schema_collections.sql"),
        event_notifications: text!("read/event_notifications.sql"),
    },
    texts: store_texts!("postgres"),
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// A file that nobody lists is never installed.
    #[test]
    fn every_verb_view_and_table_is_listed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/postgres");
        let listed: BTreeSet<String> =
            DIALECT.schema.iter().chain(DIALECT.logic).map(|script| script.name.to_owned()).collect();
        assert_eq!(listed.len(), DIALECT.schema.len() + DIALECT.logic.len(), "one is listed twice");
        let mut found = BTreeSet::from(["roles.sql".to_owned()]);
        for folder in ["schema", "verbs", "views"] {
            for file in std::fs::read_dir(root.join(folder)).unwrap() {
                found.insert(format!("{folder}/{}", file.unwrap().file_name().to_string_lossy()));
            }
        }
        assert_eq!(listed, found);
        let schema: Vec<&str> = DIALECT.schema.iter().map(|script| script.name).collect();
        assert!(schema.is_sorted(), "{schema:?}");
    }
}
