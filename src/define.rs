//! Definitions by builder: the definition language without its text.

mod missing;
mod plan;
mod shown;
mod work;

pub(crate) use missing::{missing, turned};
pub use plan::{DefinitionChange, DefinitionChangeKind};
pub use work::{WorkQueueDefinition, WorkScheduleDefinition};

pub use crate::protocol::definition::{
    AfterRetries, BrokerOption, Definition, ExecuteAs, Pauses, QueueEvent, RetryPolicy, Validation,
};
pub use crate::protocol::system::POST_EVENT_NOTIFICATION;

use crate::error::{Error, Result};
use crate::message::DeclaresType;
use crate::protocol::definition::{
    ActivationChange, ActivationOptions, AnyOr, ContractEntry, PriorityOptions, QueueOptions, RetryChange, SentBy,
};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A priority level: 1 (low) to 10 (high); without a broker priority, 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Level(u8);

impl Level {
    /// 1
    pub const LOWEST: Self = Self(1);
    /// 5: the level of a conversation when no broker priority matches.
    pub const DEFAULT: Self = Self(5);
    /// 10
    pub const HIGHEST: Self = Self(10);

    /// The level of that number.
    ///
    /// # Panics
    /// If it is not within 1 to 10; in a `const` that is an error of the compiler. See [`TryFrom`] for numbers that
    /// come from elsewhere.
    pub const fn new(level: u8) -> Self {
        assert!(level >= 1 && level <= 10, "a priority level is 1 (low) to 10 (high)");
        Self(level)
    }

    /// Its number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for Level {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<u8> for Level {
    type Error = Error;

    fn try_from(level: u8) -> Result<Self> {
        if (1..=10).contains(&level) {
            return Ok(Self(level));
        }
        Err(Error::out_of_range("the priority level", level, "1 (low) to 10 (high)"))
    }
}

/// A list of definitions in the making; see [`Broker::define`](crate::Broker::define).
///
/// A method that creates an object returns a view of that one object, on which its settings are made; every other
/// definition may follow on it.
#[derive(Debug, Default)]
pub struct Definitions {
    list: Vec<Definition>,
}

impl Definitions {
    /// The definitions in order.
    pub fn into_list(self) -> Vec<Definition> {
        self.list
    }

    /// Adds any definition.
    pub fn add(&mut self, definition: Definition) -> &mut Self {
        self.list.push(definition);
        self
    }

    /// `CREATE MESSAGE TYPE`, with the validation that the [`MessageType`](crate::MessageType) stands for.
    pub fn message_type(&mut self, message_type: impl DeclaresType) -> &mut Self {
        let validation = message_type.validation();
        self.message_type_with(message_type.type_name(), validation)
    }

    /// `CREATE MESSAGE TYPE name VALIDATION = ...`
    pub fn message_type_with(&mut self, name: impl Into<String>, validation: Validation) -> &mut Self {
        self.add(Definition::CreateMessageType { name: name.into(), owner: None, validation })
    }

    /// `ALTER MESSAGE TYPE`, to the validation that the [`MessageType`](crate::MessageType) stands for.
    pub fn alter_message_type(&mut self, message_type: impl DeclaresType) -> &mut Self {
        let validation = message_type.validation();
        self.add(Definition::AlterMessageType { name: message_type.type_name().to_owned(), validation })
    }

    /// `DROP MESSAGE TYPE`
    pub fn drop_message_type(&mut self, message_type: impl DeclaresType) -> &mut Self {
        self.add(Definition::DropMessageType { name: message_type.type_name().to_owned() })
    }

    /// `CREATE CONTRACT`; its message types are added on the returned view.
    pub fn contract(&mut self, name: impl Into<String>) -> ContractDefinition<'_> {
        self.add(Definition::CreateContract { name: name.into(), owner: None, entries: Vec::new() });
        ContractDefinition(self)
    }

    /// `DROP CONTRACT`
    pub fn drop_contract(&mut self, name: impl Into<String>) -> &mut Self {
        self.add(Definition::DropContract { name: name.into() })
    }

    /// `CREATE QUEUE`; its settings are made on the returned view.
    pub fn queue(&mut self, name: impl Into<String>) -> QueueDefinition<'_> {
        self.add(Definition::CreateQueue { name: name.into(), options: QueueOptions::default() });
        QueueDefinition(self)
    }

    /// `ALTER QUEUE`; the changes are set on the returned view.
    pub fn alter_queue(&mut self, name: impl Into<String>) -> QueueDefinition<'_> {
        self.add(Definition::AlterQueue { name: name.into(), options: QueueOptions::default() });
        QueueDefinition(self)
    }

    /// `DROP QUEUE`
    pub fn drop_queue(&mut self, name: impl Into<String>) -> &mut Self {
        self.add(Definition::DropQueue { name: name.into() })
    }

    /// `CREATE SERVICE name ON QUEUE queue (contract, ...)`. A service with no contracts can begin conversations but
    /// not be addressed.
    pub fn service<const N: usize>(
        &mut self,
        name: impl Into<String>,
        queue: impl Into<String>,
        contracts: [&str; N],
    ) -> &mut Self {
        let contracts = contracts.into_iter().map(str::to_owned).collect();
        self.add(Definition::CreateService { name: name.into(), owner: None, queue: queue.into(), contracts })
    }

    /// `ALTER SERVICE`; the changes are set on the returned view.
    pub fn alter_service(&mut self, name: impl Into<String>) -> ServiceChange<'_> {
        self.add(Definition::AlterService {
            name: name.into(),
            queue: None,
            add_contracts: Vec::new(),
            drop_contracts: Vec::new(),
        });
        ServiceChange(self)
    }

    /// `DROP SERVICE`
    pub fn drop_service(&mut self, name: impl Into<String>) -> &mut Self {
        self.add(Definition::DropService { name: name.into() })
    }

    /// `CREATE BROKER PRIORITY`; criteria and level are set on the returned view. Criteria not set are ANY, a level not
    /// set is 5.
    pub fn broker_priority(&mut self, name: impl Into<String>) -> PriorityDefinition<'_> {
        self.add(Definition::CreateBrokerPriority { name: name.into(), set: PriorityOptions::default() });
        PriorityDefinition(self)
    }

    /// `ALTER BROKER PRIORITY`; the changes are set on the returned view.
    pub fn alter_broker_priority(&mut self, name: impl Into<String>) -> PriorityDefinition<'_> {
        self.add(Definition::AlterBrokerPriority { name: name.into(), set: PriorityOptions::default() });
        PriorityDefinition(self)
    }

    /// `DROP BROKER PRIORITY`
    pub fn drop_broker_priority(&mut self, name: impl Into<String>) -> &mut Self {
        self.add(Definition::DropBrokerPriority { name: name.into() })
    }

    /// `CREATE XML SCHEMA COLLECTION`
    pub fn xml_schema_collection(&mut self, name: impl Into<String>, schemas: impl Into<String>) -> &mut Self {
        self.add(Definition::CreateXmlSchemaCollection { name: name.into(), schemas: schemas.into() })
    }

    /// `DROP XML SCHEMA COLLECTION`
    pub fn drop_xml_schema_collection(&mut self, name: impl Into<String>) -> &mut Self {
        self.add(Definition::DropXmlSchemaCollection { name: name.into() })
    }

    /// `CREATE EVENT NOTIFICATION name ON QUEUE queue FOR event TO SERVICE 'service', 'current database'`; the service
    /// accepts the contract [`POST_EVENT_NOTIFICATION`].
    pub fn event_notification(
        &mut self,
        name: impl Into<String>,
        queue: impl Into<String>,
        event: QueueEvent,
        service: impl Into<String>,
    ) -> &mut Self {
        let (name, queue, service) = (name.into(), queue.into(), service.into());
        self.add(Definition::CreateEventNotification { name, queue, event, service })
    }

    /// `DROP EVENT NOTIFICATION name ON QUEUE queue`
    pub fn drop_event_notification(&mut self, name: impl Into<String>, queue: impl Into<String>) -> &mut Self {
        self.add(Definition::DropEventNotification { name: name.into(), queue: queue.into() })
    }

    /// `ALTER DATABASE CURRENT SET option`
    pub fn alter_database(&mut self, option: BrokerOption) -> &mut Self {
        self.add(Definition::AlterDatabase { option })
    }

    fn last(&mut self) -> &mut Definition {
        self.list.last_mut().expect("a view is made right after its definition")
    }
}

macro_rules! view {
    ($(#[doc = $doc:literal])* $name:ident) => {
        $(#[doc = $doc])*
        #[derive(Debug)]
        pub struct $name<'a>(pub(super) &'a mut Definitions);

        impl Deref for $name<'_> {
            type Target = Definitions;

            fn deref(&self) -> &Definitions {
                self.0
            }
        }

        impl DerefMut for $name<'_> {
            fn deref_mut(&mut self) -> &mut Definitions {
                self.0
            }
        }
    };
}

use view;

view! {
    /// The contract just begun: its message types.
    ContractDefinition
}

impl ContractDefinition<'_> {
    /// `t SENT BY INITIATOR`
    pub fn sent_by_initiator(self, message_type: impl DeclaresType) -> Self {
        self.sent_by(message_type, SentBy::Initiator)
    }

    /// `t SENT BY TARGET`
    pub fn sent_by_target(self, message_type: impl DeclaresType) -> Self {
        self.sent_by(message_type, SentBy::Target)
    }

    /// `t SENT BY ANY`
    pub fn sent_by_any(self, message_type: impl DeclaresType) -> Self {
        self.sent_by(message_type, SentBy::Any)
    }

    fn sent_by(self, message_type: impl DeclaresType, sent_by: SentBy) -> Self {
        if let Definition::CreateContract { entries, .. } = self.0.last() {
            entries.push(ContractEntry { message_type: message_type.type_name().to_owned(), sent_by });
        }
        self
    }
}

view! {
    /// The queue just named: its settings.
    QueueDefinition
}

impl QueueDefinition<'_> {
    fn set(self, change: impl FnOnce(&mut QueueOptions)) -> Self {
        if let Definition::CreateQueue { options, .. } | Definition::AlterQueue { options, .. } = self.0.last() {
            change(options);
        }
        self
    }

    fn activate(self, change: impl FnOnce(&mut ActivationOptions)) -> Self {
        self.set(|options| {
            let mut activation = match options.activation.take() {
                Some(ActivationChange::Set(activation)) => activation,
                _ => ActivationOptions::default(),
            };
            change(&mut activation);
            options.activation = Some(ActivationChange::Set(activation));
        })
    }

    /// `STATUS = ON | OFF`: whether the queue accepts and delivers messages.
    pub fn status(self, on: bool) -> Self {
        self.set(|options| options.status = Some(on))
    }

    /// `REASON = '...'`, ours: why the queue is turned off; only beside `status(false)`.
    pub fn reason(self, reason: impl Into<String>) -> Self {
        self.set(|options| options.reason = Some(reason.into()))
    }

    /// `RETENTION = ON | OFF`: whether rows are kept until their conversation ends.
    pub fn retention(self, on: bool) -> Self {
        self.set(|options| options.retention = Some(on))
    }

    /// `POISON_MESSAGE_HANDLING (STATUS = ON | OFF)`: whether five rollbacks in a row disable the queue.
    pub fn poison_message_handling(self, on: bool) -> Self {
        self.set(|options| options.poison_message_handling = Some(on))
    }

    /// `POISON_MESSAGE_HANDLING (QUARANTINE = ON | OFF)`, ours: quarantines only the guilty group.
    pub fn poison_quarantine(self, on: bool) -> Self {
        self.set(|options| options.poison_quarantine = Some(on))
    }

    /// `RETRY (...)`, ours: pauses between the attempts at a conversation group whose transactions roll back, and what
    /// follows the last. Numbers have the ranges of the DDL.
    ///
    /// ```
    /// # use dialoq::define::{AfterRetries, Definitions, Pauses, RetryPolicy};
    /// # fn define(d: &mut Definitions) {
    /// let pauses = Pauses { delay_ms: 500, factor_percent: 300, max_delay_ms: 60_000, jitter_percent: 20 };
    /// d.queue("orders").retry(RetryPolicy { max_attempts: 8, pauses, then: AfterRetries::EndWithError });
    /// # }
    /// ```
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.set(|options| options.retry = Some(RetryChange::Set(policy.to_options())))
    }

    /// `RETRY (DROP)`: rollbacks count as in Service Broker again.
    pub fn drop_retry(self) -> Self {
        self.set(|options| options.retry = Some(RetryChange::Drop))
    }

    /// `ACTIVATION (PROCEDURE_NAME = ..., MAX_QUEUE_READERS = ...)`: the handler of that name, at most so many at a
    /// time.
    pub fn activation(self, procedure_name: impl Into<String>, max_queue_readers: u16) -> Self {
        let procedure_name = procedure_name.into();
        self.activate(|activation| {
            activation.procedure_name = Some(procedure_name);
            activation.max_queue_readers = Some(max_queue_readers.into());
            activation.execute_as.get_or_insert(ExecuteAs::Owner);
        })
    }

    /// `ACTIVATION (STATUS = ON | OFF)`: whether readers are launched.
    pub fn activation_status(self, on: bool) -> Self {
        self.activate(|activation| activation.status = Some(on))
    }

    /// `ACTIVATION (MAX_QUEUE_READERS = n)`, 0 to 32767.
    pub fn max_queue_readers(self, readers: u16) -> Self {
        self.activate(|activation| activation.max_queue_readers = Some(readers.into()))
    }

    /// `ACTIVATION (EXECUTE AS ...)`: kept for compatibility.
    pub fn execute_as(self, principal: ExecuteAs) -> Self {
        self.activate(|activation| activation.execute_as = Some(principal))
    }

    /// `ACTIVATION (DROP)`
    pub fn drop_activation(self) -> Self {
        self.set(|options| options.activation = Some(ActivationChange::Drop))
    }
}

view! {
    /// The service just named: its changes.
    ServiceChange
}

impl ServiceChange<'_> {
    /// `ON QUEUE queue`: moves it there with all its messages.
    pub fn on_queue(self, queue: impl Into<String>) -> Self {
        if let Definition::AlterService { queue: place, .. } = self.0.last() {
            *place = Some(queue.into());
        }
        self
    }

    /// `ADD CONTRACT`
    pub fn add_contract(self, contract: impl Into<String>) -> Self {
        if let Definition::AlterService { add_contracts, .. } = self.0.last() {
            add_contracts.push(contract.into());
        }
        self
    }

    /// `DROP CONTRACT`: live conversations over it break with Error -8469.
    pub fn remove_contract(self, contract: impl Into<String>) -> Self {
        if let Definition::AlterService { drop_contracts, .. } = self.0.last() {
            drop_contracts.push(contract.into());
        }
        self
    }
}

view! {
    /// The broker priority just named: its criteria and level.
    PriorityDefinition
}

impl PriorityDefinition<'_> {
    fn set(self, change: impl FnOnce(&mut PriorityOptions)) -> Self {
        if let Definition::CreateBrokerPriority { set, .. } | Definition::AlterBrokerPriority { set, .. } =
            self.0.last()
        {
            change(set);
        }
        self
    }

    /// `CONTRACT_NAME = name`
    pub fn contract(self, name: impl Into<String>) -> Self {
        self.set(|options| options.contract = Some(AnyOr::Name(name.into())))
    }

    /// `CONTRACT_NAME = ANY`
    pub fn any_contract(self) -> Self {
        self.set(|options| options.contract = Some(AnyOr::Any))
    }

    /// `LOCAL_SERVICE_NAME = name`
    pub fn local_service(self, name: impl Into<String>) -> Self {
        self.set(|options| options.local_service = Some(AnyOr::Name(name.into())))
    }

    /// `LOCAL_SERVICE_NAME = ANY`
    pub fn any_local_service(self) -> Self {
        self.set(|options| options.local_service = Some(AnyOr::Any))
    }

    /// `REMOTE_SERVICE_NAME = 'name'`
    pub fn remote_service(self, name: impl Into<String>) -> Self {
        self.set(|options| options.remote_service = Some(AnyOr::Name(name.into())))
    }

    /// `REMOTE_SERVICE_NAME = ANY`
    pub fn any_remote_service(self) -> Self {
        self.set(|options| options.remote_service = Some(AnyOr::Any))
    }

    /// `PRIORITY_LEVEL = n`
    pub fn level(self, level: Level) -> Self {
        self.set(|options| options.level = Some(level.get().into()))
    }
}

#[cfg(test)]
mod tests;
