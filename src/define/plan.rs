//! What a script would change: the objects before and after.

use super::missing::{missing, turned};
use crate::broker::Broker;
use crate::catalog::{Catalog, apply, ddl};
use crate::error::{Error, Result};
use crate::id::IdSource;
use crate::protocol::definition::{BrokerOption, Definition};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// What happens to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DefinitionChangeKind {
    /// It is made.
    Created,
    /// It is there, and becomes another.
    Altered,
    /// It is removed.
    Dropped,
}

/// One object that a script changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DefinitionChange {
    /// What happens to it.
    pub kind: DefinitionChangeKind,
    /// The object: its kind and name, such as `queue 'orders'`.
    pub object: String,
    /// The statement that makes it as it is.
    pub before: Option<String>,
    /// The statement that makes it as it would be.
    pub after: Option<String>,
}

/// As a diff shows it: `- ` before what goes, `+ ` before what comes.
impl fmt::Display for DefinitionChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(before) = &self.before {
            write!(f, "- {before}")?;
        }
        if let Some(after) = &self.after {
            let gap = if self.before.is_some() { "\n" } else { "" };
            write!(f, "{gap}+ {after}")?;
        }
        Ok(())
    }
}

impl Broker {
    /// What [`Broker::execute`] would change with this script now; nothing is changed. The effects on open conversations are
    /// not part of it.
    ///
    /// # Errors
    /// Those of [`Broker::execute`], but for those that only the store can know.
    pub fn preview(&self, script: &str) -> Result<Vec<DefinitionChange>> {
        let statements = ddl::parse(script)?;
        changes(&self.catalog(), statements.iter().map(|statement| &statement.definition))
            .map_err(|error| placed(error, &statements))
    }

    /// The same for [`Broker::ensure_script`].
    ///
    /// # Errors
    /// Those of [`Broker::ensure`], with the [position](Error::position) of the statement.
    pub fn preview_ensure(&self, script: &str) -> Result<Vec<DefinitionChange>> {
        let (catalog, statements) = (self.catalog(), ddl::parse(script)?);
        let rest = still_missing(&catalog, &statements)?;
        changes(&catalog, rest.iter())
    }

    /// The warnings of [`Broker::ensure_script`] about what stands otherwise than a script says and stays so.
    #[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "only the command previews"))]
    pub(crate) fn preview_warnings(&self, script: &str) -> Result<Vec<String>> {
        let wanted: Vec<Definition> = ddl::parse(script)?.into_iter().map(|statement| statement.definition).collect();
        Ok(turned(&self.catalog(), &wanted))
    }

    /// Makes the definitions of a script that are missing, as [`Broker::ensure`] does: run twice, it changes nothing the second
    /// time. Returns the warnings.
    ///
    /// # Errors
    /// Those of [`Broker::ensure`], with the [position](Error::position) of the statement.
    pub async fn ensure_script(&self, script: &str) -> Result<Vec<String>> {
        let statements = ddl::parse(script)?;
        let wanted: Vec<Definition> = statements.iter().map(|statement| statement.definition.clone()).collect();
        still_missing(&self.catalog(), &statements)?;
        self.ensure_list(&wanted).await
    }
}

fn still_missing(catalog: &Catalog, statements: &[ddl::Statement]) -> Result<Vec<Definition>> {
    let wanted: Vec<Definition> = statements.iter().map(|statement| statement.definition.clone()).collect();
    missing(catalog, &wanted).map_err(|error| placed(error, statements))
}

fn placed(error: Error, statements: &[ddl::Statement]) -> Error {
    match error.statement().and_then(|index| statements.get(index)) {
        Some(statement) => error.at(statement.position),
        None => error,
    }
}

/// The objects that these definitions change, in the order of a dump. An object that is dropped and made again as it was loses
/// its conversations, messages or jobs, so it is one of them; so are all conversations, if a statement erases or ends them.
fn changes<'a>(before: &Catalog, definitions: impl Iterator<Item = &'a Definition>) -> Result<Vec<DefinitionChange>> {
    let (mut after, mut ids) = (before.clone(), IdSource::Random);
    let (mut dropped, mut of_conversations) = (Vec::new(), None);
    for (index, definition) in definitions.enumerate() {
        apply::apply(&mut after, definition, &mut ids).map_err(|error| error.in_statement(index))?;
        dropped.extend(named_in_drop(definition));
        if let Definition::AlterDatabase { option: BrokerOption::NewBroker | BrokerOption::ErrorBrokerConversations } =
            definition
        {
            let kind = match definition {
                Definition::AlterDatabase { option: BrokerOption::NewBroker } => DefinitionChangeKind::Dropped,
                _ => DefinitionChangeKind::Altered,
            };
            of_conversations = Some(DefinitionChange {
                kind,
                object: named(definition),
                before: None,
                after: Some(ddl::render_definition(definition)),
            });
        }
    }
    // Names of queues have no case.
    let is_dropped = |object: &str| dropped.iter().any(|name| name.eq_ignore_ascii_case(object));
    let (old, new) = (objects(before), objects(&after));
    let mut found: Vec<(usize, DefinitionChange)> = Vec::new();
    for (object, (place, text)) in &new {
        let before = old.get(object).map(|(_, text)| text.clone());
        let kind = match &before {
            None => DefinitionChangeKind::Created,
            Some(_) if is_dropped(object) => {
                let kind = DefinitionChangeKind::Dropped;
                found.push((*place, DefinitionChange { kind, object: object.clone(), before, after: None }));
                let (kind, after) = (DefinitionChangeKind::Created, Some(text.clone()));
                found.push((*place, DefinitionChange { kind, object: object.clone(), before: None, after }));
                continue;
            }
            Some(before) if before != text => DefinitionChangeKind::Altered,
            Some(_) => continue,
        };
        found.push((*place, DefinitionChange { kind, object: object.clone(), before, after: Some(text.clone()) }));
    }
    for (object, (place, text)) in old.iter().filter(|(object, _)| !new.contains_key(*object)) {
        let kind = DefinitionChangeKind::Dropped;
        found
            .push((*place, DefinitionChange { kind, object: object.clone(), before: Some(text.clone()), after: None }));
    }
    found.sort_by_key(|(place, _)| *place);
    // Named by what it is set to: "altered ENABLE_BROKER" reads as if the broker were on.
    for (_, change) in found.iter_mut().filter(|(_, change)| change.object == DELIVERY) {
        if change.after.as_deref().is_some_and(|after| after.contains("DISABLE_BROKER")) {
            change.object = "database option DISABLE_BROKER".to_owned();
        }
    }
    Ok(found.into_iter().map(|(_, change)| change).chain(of_conversations).collect())
}

/// Every object by its kind and name, with its place in a dump and the statement that makes it.
fn objects(catalog: &Catalog) -> BTreeMap<String, (usize, String)> {
    let settings = &catalog.settings;
    let delivery = if settings.is_broker_enabled { BrokerOption::EnableBroker } else { BrokerOption::DisableBroker };
    let options = [delivery, BrokerOption::HonorBrokerPriority(settings.is_honor_broker_priority_on)];
    // A dump leaves options at their defaults out.
    let mut all = ddl::definitions(catalog);
    all.retain(|definition| !matches!(definition, Definition::AlterDatabase { .. }));
    all.extend(options.map(|option| Definition::AlterDatabase { option }));
    all.iter()
        .enumerate()
        .map(|(place, definition)| (named(definition), (place, ddl::render_definition(definition))))
        .collect()
}

/// The option that is one before and after, whatever it is set to.
const DELIVERY: &str = "database option ENABLE_BROKER";

fn named(definition: &Definition) -> String {
    use Definition as D;
    let (kind, name) = match definition {
        D::CreateMessageType { name, .. } => ("message type", name),
        D::CreateContract { name, .. } => ("contract", name),
        D::CreateQueue { name, .. } => ("queue", name),
        D::CreateService { name, .. } => ("service", name),
        D::CreateBrokerPriority { name, .. } => ("broker priority", name),
        D::CreateXmlSchemaCollection { name, .. } => ("XML schema collection", name),
        D::CreateEventNotification { name, queue, .. } => {
            return format!("event notification '{name}' on queue '{queue}'");
        }
        D::CreateWorkQueue { name, .. } => ("work queue", name),
        D::CreateWorkSchedule { name, .. } => ("work schedule", name),
        D::AlterDatabase { option: BrokerOption::EnableBroker | BrokerOption::DisableBroker } => {
            return DELIVERY.to_owned();
        }
        D::AlterDatabase { option: BrokerOption::HonorBrokerPriority(_) } => {
            return "database option HONOR_BROKER_PRIORITY".to_owned();
        }
        D::AlterDatabase { .. } => return "all conversations".to_owned(),
        other => return ddl::render_definition(other),
    };
    format!("{kind} '{name}'")
}

/// The object that a statement drops, as [`named`] calls it.
fn named_in_drop(definition: &Definition) -> Option<String> {
    use Definition as D;
    let (kind, name) = match definition {
        D::DropMessageType { name } => ("message type", name),
        D::DropContract { name } => ("contract", name),
        D::DropQueue { name } => ("queue", name),
        D::DropService { name } => ("service", name),
        D::DropBrokerPriority { name } => ("broker priority", name),
        D::DropXmlSchemaCollection { name } => ("XML schema collection", name),
        D::DropEventNotification { name, queue } => {
            return Some(format!("event notification '{name}' on queue '{queue}'"));
        }
        D::DropWorkQueue { name } => ("work queue", name),
        D::DropWorkSchedule { name } => ("work schedule", name),
        _ => return None,
    };
    Some(format!("{kind} '{name}'"))
}
