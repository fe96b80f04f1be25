//! The inventory service in a database of its own: queues, services, and conversations ready to carry items.

use super::load::{Class, HIGH_CONVERSATIONS, LOW_CONVERSATIONS};
use dialoq::define::Definitions;
use dialoq::internals::ErrorConstructors;
use dialoq::{Act, Broker, Code, ConversationHandle, Error, Level, MessageType, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

pub(super) const ADD_ITEM: MessageType<serde_json::Value> = MessageType::json("//inventory/AddItem");
/// The one queue.
pub(super) const QUEUE: &str = "inventory";
/// The two queues.
pub(super) const HIGH_QUEUE: &str = "inventory_high";
/// The two queues.
pub(super) const LOW_QUEUE: &str = "inventory_low";
/// The level of the high class where levels are used.
pub(super) const HIGH_LEVEL: u8 = 8;
/// The level of the low class where levels are used.
pub(super) const LOW_LEVEL: u8 = 3;

const CONTRACT_HIGH: &str = "//inventory/Urgent";
const CONTRACT_LOW: &str = "//inventory/Routine";

/// How the messages are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// One queue, everything at level 5.
    OneQueue,
    /// One queue, the classes at levels of their own.
    OneQueueWithLevels,
    /// A queue for each class.
    TwoQueues,
}

impl Layout {
    pub(super) fn queue_of(self, class: Class) -> &'static str {
        match (self, class) {
            (Self::OneQueue | Self::OneQueueWithLevels, _) => QUEUE,
            (Self::TwoQueues, Class::High) => HIGH_QUEUE,
            (Self::TwoQueues, Class::Low) => LOW_QUEUE,
        }
    }

    fn define(self, definitions: &mut Definitions) {
        definitions.message_type(ADD_ITEM);
        definitions.contract(CONTRACT_HIGH).sent_by_initiator(ADD_ITEM);
        definitions.contract(CONTRACT_LOW).sent_by_initiator(ADD_ITEM);
        definitions.queue("shop");
        definitions.service("//shop/Front", "shop", []);
        match self {
            Self::OneQueue | Self::OneQueueWithLevels => {
                definitions.queue(QUEUE);
            }
            Self::TwoQueues => {
                definitions.queue(HIGH_QUEUE);
                definitions.queue(LOW_QUEUE);
            }
        }
        definitions.service(service_of(Class::High), self.queue_of(Class::High), [CONTRACT_HIGH]);
        definitions.service(service_of(Class::Low), self.queue_of(Class::Low), [CONTRACT_LOW]);
        if self == Self::OneQueueWithLevels {
            definitions.broker_priority("urgent").contract(CONTRACT_HIGH).level(Level::new(HIGH_LEVEL));
            definitions.broker_priority("routine").contract(CONTRACT_LOW).level(Level::new(LOW_LEVEL));
        }
    }

    /// Takes away what `define` made; conversations go with their services.
    fn undefine(self, definitions: &mut Definitions) {
        definitions
            .drop_service(service_of(Class::High))
            .drop_service(service_of(Class::Low))
            .drop_service("//shop/Front");
        if self == Self::OneQueueWithLevels {
            definitions.drop_broker_priority("urgent").drop_broker_priority("routine");
        }
        match self {
            Self::OneQueue | Self::OneQueueWithLevels => definitions.drop_queue(QUEUE),
            Self::TwoQueues => definitions.drop_queue(HIGH_QUEUE).drop_queue(LOW_QUEUE),
        };
        definitions.drop_queue("shop").drop_contract(CONTRACT_HIGH).drop_contract(CONTRACT_LOW);
        definitions.drop_message_type(ADD_ITEM);
    }
}

fn service_of(class: Class) -> &'static str {
    match class {
        Class::High => "//inventory/Urgent",
        Class::Low => "//inventory/Routine",
    }
}

fn contract_of(class: Class) -> &'static str {
    match class {
        Class::High => CONTRACT_HIGH,
        Class::Low => CONTRACT_LOW,
    }
}

/// A conversation of the load: its class and its place in it.
pub(super) type Line = (Class, usize);

/// The conversations by the sender's side and by the receiver's.
type Lines = (HashMap<Line, ConversationHandle>, HashMap<ConversationHandle, Line>);

/// Where a scene is set.
#[derive(Debug, Clone, Copy)]
pub(super) enum Site<'a> {
    /// In a folder of its own below this one, which is removed with it.
    Below(&'a Path),
    /// On the server of that URL, from which it is removed again.
    Server(&'a str),
}

/// A broker with everything a contestant needs.
pub(super) struct Scene {
    pub(super) broker: Broker,
    layout: Layout,
    /// The sender's side of each conversation.
    pub(super) senders: HashMap<Line, ConversationHandle>,
    /// The receiver's side.
    pub(super) receivers: HashMap<ConversationHandle, Line>,
    /// `None` on a server.
    folder: Option<Folder>,
}

pub(super) struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // A file that another process holds open cannot be removed in a folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Site<'_> {
    /// Opens the database.
    pub(super) async fn open(self) -> Result<(Broker, Option<Folder>)> {
        Ok(match self {
            Self::Below(parent) => {
                let folder = Folder::new(parent)?;
                (Broker::open(&format!("sqlite:{}", folder.0.join("lab.db").display())).await?, Some(folder))
            }
            Self::Server(url) => (Broker::open(url).await?, None),
        })
    }
}

impl Folder {
    fn new(parent: &Path) -> Result<Self> {
        let path = parent.join(format!("dialoq-lab-{}", uuid::Uuid::new_v4()));
        match std::fs::create_dir(&path) {
            Ok(()) => Ok(Self(path)),
            Err(cause) => {
                let why = format!("the lab's folder {} cannot be made: {cause}", path.display());
                Err(Error::new(Code::STORE_READ_ONLY, why).caused_by(cause))
            }
        }
    }
}

impl Scene {
    /// Opens the database, defines everything, and has one message through each conversation, so that both sides of it
    /// are there and their handles known.
    pub(super) async fn set(layout: Layout, site: Site<'_>) -> Result<Self> {
        let (broker, folder) = site.open().await?;
        broker.define(|definitions| layout.define(definitions)).await?;
        let made = Self::create_objects(&broker, layout).await;
        if made.is_err() && folder.is_none() {
            // The caller gets the failure.
            let _ = broker.define(|definitions| layout.undefine(definitions)).await;
        }
        let (senders, receivers) = made?;
        Ok(Self { broker, layout, senders, receivers, folder })
    }

    /// Takes everything away again, from a server also what was defined there.
    pub(super) async fn strike(self) -> Result<()> {
        if self.folder.is_none() {
            self.broker.define(|definitions| self.layout.undefine(definitions)).await?;
        }
        self.broker.close().await
    }

    async fn create_objects(broker: &Broker, layout: Layout) -> Result<Lines> {
        let mut senders = HashMap::new();
        for (class, count) in [(Class::High, HIGH_CONVERSATIONS), (Class::Low, LOW_CONVERSATIONS)] {
            for place in 0..count {
                let dialog =
                    broker.begin_dialog("//shop/Front", service_of(class)).contract(contract_of(class)).await?;
                broker.send(dialog, ADD_ITEM, &serde_json::json!([class, place])).await?;
                senders.insert((class, place), dialog);
            }
        }
        let mut receivers = HashMap::new();
        for class in Class::ALL {
            while receivers.len() < senders.len() {
                let Some(batch) = broker.receive(layout.queue_of(class)).await? else { break };
                for message in &batch {
                    let line: Line = serde_json::from_value(message.decode(ADD_ITEM)?).map_err(|cause| {
                        let why = format!("the lab's own first message came back changed: {cause}");
                        Error::new(Code::STORE_DAMAGED, why).caused_by(cause)
                    })?;
                    receivers.insert(message.conversation_handle, line);
                }
            }
        }
        Ok((senders, receivers))
    }

    /// The receiver's handle of that conversation.
    pub(super) fn receiver(&self, line: Line) -> Option<ConversationHandle> {
        self.receivers.iter().find(|(_, known)| **known == line).map(|(handle, _)| *handle)
    }
}
