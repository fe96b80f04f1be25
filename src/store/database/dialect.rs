//! The SQL of one server: all texts of `sql/<dialect>`.

use crate::sql::Script;
use crate::store::StoreTexts;

/// The SQL of one server.
#[derive(Debug)]
pub struct Dialect {
    /// As in URLs and messages: `postgres`, `mssql`.
    pub name: &'static str,
    /// The table scripts, in order; each is run once in the life of a schema.
    pub schema: &'static [Script],
    /// Rules, verbs and views, in the order in which they can be created; then the roles. If one differs, all are replaced.
    pub logic: &'static [&'static [Script]],
    /// Removes all our objects from the database.
    pub drop: &'static str,
    /// Whether scripts are cut into batches at lines with GO.
    pub has_batches: bool,
    /// Whether it has the batches of work queues (`push_job_batch` and its like).
    pub has_job_batches: bool,
    /// Whether it has the batches of beginnings and ends of conversations (`begin_batch`, `end_batch`).
    pub has_dialog_batches: bool,
    /// Whether a receive of an open transaction may be noted later than at once (`commit_receives`).
    pub notes_later: bool,
    /// Whether a session can claim messages for transactions of all callers (`claim_batch`).
    pub has_claims: bool,
    /// Whether an installation takes away rights on what is for the owner alone (`doctor/foreign_privileges.sql`).
    pub corrects_rights: bool,
    /// The texts of an installation.
    pub install: Install,
    /// Definition reads.
    pub reads: Reads,
    /// The reads of `Broker::status` and `Broker::doctor`.
    pub texts: StoreTexts,
    /// Reads the session that holds the lock of a conversation group.
    pub lock_holder: &'static str,
    /// Reads the queues from which a definition that waits holds receives back.
    pub receive_holds: &'static str,
}

impl Dialect {
    /// Every script of [`logic`](Self::logic), in order.
    pub fn logic(&self) -> impl Iterator<Item = &Script> {
        self.logic.iter().copied().flatten()
    }
}

/// `install/*.sql`: the texts that an installer runs besides the schema and the logic.
#[derive(Debug, Clone, Copy)]
pub struct Install {
    /// Reads the state of the schema and the rights of this user; needs no rights. One row: has_schema,
    /// has_installed (the table), objects (others in the schema), missing_to_use, missing_to_install (rights, in words;
    /// NULL if none), user_name, database_name.
    pub schema_state: &'static str,
    /// Reads schema_version, logic_hash and installed_by; run only if the table `installed` exists.
    pub version: &'static str,
    /// Takes the lock of installers until the end of the transaction; waits for it.
    pub lock: &'static str,
    /// Creates the schema, if it does not exist, and the table `installed`.
    pub begin: &'static str,
    /// Removes verbs and views, so that they can be created again.
    pub clear: &'static str,
    /// The text around the steps of a printed installation; the line `-- <steps>` is their place.
    pub script: &'static str,
    /// Calls `<name>` with `<arguments>` in a printed installation.
    pub call: &'static str,
    /// Stands after every batch of a printed installation: if one failed, the rest does not run. Empty without batches.
    pub stop: &'static str,
}

/// The texts that read every definition; columns as in the embedded store's reads of the same names.
#[derive(Debug, Clone, Copy)]
pub struct Reads {
    /// Settings and the catalog's version.
    pub broker: &'static str,
    /// Message types.
    pub message_types: &'static str,
    /// Contracts.
    pub service_contracts: &'static str,
    /// Their message types.
    pub service_contract_message_usages: &'static str,
    /// Queues.
    pub service_queues: &'static str,
    /// Services.
    pub services: &'static str,
    /// Their contracts.
    pub service_contract_usages: &'static str,
    /// Broker priorities.
    pub conversation_priorities: &'static str,
    /// XML schema collections.
    pub xml_schema_collections: &'static str,
    /// Event notifications.
    pub event_notifications: &'static str,
    /// Work queues.
    pub work_queues: &'static str,
    /// Work schedules.
    pub work_schedules: &'static str,
}

/// The dialect whose texts are in that module of [`crate::sql`].
#[cfg(any(feature = "mssql", feature = "postgres"))]
macro_rules! dialect {
    ($name:ident, has_batches: $has_batches:literal, call: $call:expr, stop: $stop:expr, has_job_batches: $has_job_batches:literal, has_dialog_batches: $has_dialog_batches:literal, notes_later: $notes_later:literal, has_claims: $has_claims:literal, corrects_rights: $corrects_rights:literal, texts: $texts:expr) => {{
        use crate::sql::{Script, $name as texts};
        use crate::store::database::dialect::{Dialect, Install, Reads};
        Dialect {
            name: stringify!($name),
            schema: texts::schema::SCRIPTS,
            logic: &[
                texts::rules::SCRIPTS,
                texts::verbs::SCRIPTS,
                texts::views::SCRIPTS,
                &[Script { name: "roles.sql", text: texts::ROLES }],
            ],
            drop: texts::DROP,
            has_batches: $has_batches,
            has_job_batches: $has_job_batches,
            has_dialog_batches: $has_dialog_batches,
            notes_later: $notes_later,
            has_claims: $has_claims,
            corrects_rights: $corrects_rights,
            install: Install {
                schema_state: texts::install::SCHEMA_STATE,
                version: texts::install::VERSION,
                lock: texts::install::LOCK,
                begin: texts::install::BEGIN,
                clear: texts::install::CLEAR,
                script: texts::install::SCRIPT,
                call: $call,
                stop: $stop,
            },
            reads: Reads {
                broker: texts::read::BROKER,
                message_types: texts::read::MESSAGE_TYPES,
                service_contracts: texts::read::SERVICE_CONTRACTS,
                service_contract_message_usages: texts::read::SERVICE_CONTRACT_MESSAGE_USAGES,
                service_queues: texts::read::SERVICE_QUEUES,
                services: texts::read::SERVICES,
                service_contract_usages: texts::read::SERVICE_CONTRACT_USAGES,
                conversation_priorities: texts::read::CONVERSATION_PRIORITIES,
                xml_schema_collections: texts::read::XML_SCHEMA_COLLECTIONS,
                event_notifications: texts::read::EVENT_NOTIFICATIONS,
                work_queues: texts::read::WORK_QUEUES,
                work_schedules: texts::read::WORK_SCHEDULES,
            },
            texts: $texts,
            lock_holder: texts::inspect::LOCK_HOLDER,
            receive_holds: texts::inspect::RECEIVE_HOLDS,
        }
    }};
}
#[cfg(any(feature = "mssql", feature = "postgres"))]
pub(crate) use dialect;
