//! What differs between servers: texts, all of them from `sql/<dialect>`.

use crate::store::StoreTexts;

/// The SQL of one server.
#[derive(Debug)]
pub struct Dialect {
    /// As in URLs and messages: `postgres`, `mssql`.
    pub name: &'static str,
    /// The table scripts, in order; each is run once in the life of a schema.
    pub schema: &'static [Script],
    /// Verbs, views and roles, in the order in which they can be made; all replaced whenever one differs.
    pub logic: &'static [Script],
    /// Removes everything of ours from the database.
    pub drop: &'static str,
    /// Whether texts are cut into batches at lines that say GO.
    pub has_batches: bool,
    /// How the rest gets there.
    pub install: Install,
    /// Definition reads.
    pub reads: Reads,
    /// What `dialoq status` and `doctor` read.
    pub texts: StoreTexts,
}

/// `install/*.sql`: what an installer runs besides the schema and the logic.
#[derive(Debug, Clone, Copy)]
pub struct Install {
    /// Reads what stands in the database and what this user may do, with no rights at all. One row: has_schema,
    /// has_installed (the table), objects (others in the schema), missing_to_use, missing_to_install (rights, in words;
    /// NULL if none), user_name, database_name.
    pub standing: &'static str,
    /// Reads schema_version, logic_hash and installed_by; run only if the table `installed` is there.
    pub version: &'static str,
    /// Takes the lock of installers until the end of the transaction; waits for it.
    pub lock: &'static str,
    /// Makes the schema, if it is not there, and the table `installed`.
    pub begin: &'static str,
    /// Removes verbs and views, so that they can be made anew.
    pub clear: &'static str,
    /// What stands around the steps of an installation that is printed; the line `-- <steps>` is their place.
    pub script: &'static str,
    /// Calls `<name>` with `<arguments>` in a printed installation.
    pub call: &'static str,
    /// Stands after every batch of a printed installation: if one failed, the rest does not run. Empty without batches.
    pub stop: &'static str,
}

/// A file of `sql/<dialect>`.
#[derive(Debug, Clone, Copy)]
pub struct Script {
    /// The path below `sql/<dialect>`.
    pub name: &'static str,
    /// The text.
    pub text: &'static str,
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
}
