//! A priority messaging broker with the semantics of SQL Server Service Broker, over SQL tables.
//!
//! Two programs talk through tables. One begins a *conversation* with a *service* and sends messages. The other receives
//! them from the service's *queue*, in order, exactly once, in a transaction with its own work, and answers. Conversations
//! have *priorities*, so that urgent work overtakes. A message that cannot be delivered waits, and is delivered when the
//! reason is gone. If a conversation breaks, both sides get an Error. A *work queue* holds jobs that need no conversation.
//!
//! ```
//! use dialoq::{Act, Broker, Level, MessageType};
//! use std::time::Duration;
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct PlaceOrder { sku: String, pieces: u32 }
//!
//! const PLACE_ORDER: MessageType<PlaceOrder> = MessageType::json("//shop/PlaceOrder");
//! const ORDER_PLACED: MessageType<String> = MessageType::text("//shop/OrderPlaced");
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> dialoq::Result<()> {
//! let broker = Broker::open("sqlite::memory:").await?;
//! broker.ensure(|d| {
//!     d.message_type(PLACE_ORDER).message_type(ORDER_PLACED);
//!     d.contract("//shop/Orders").sent_by_initiator(PLACE_ORDER).sent_by_target(ORDER_PLACED);
//!     d.queue("orders").queue("checkout");
//!     d.service("//shop/OrderService", "orders", ["//shop/Orders"]).service("//shop/Checkout", "checkout", []);
//!     d.broker_priority("orders").contract("//shop/Orders").level(Level::new(9));
//! }).await?;
//!
//! // One side asks: the conversation and its first message are one commit.
//! let tx = broker.begin().await?;
//! let dialog = tx.begin_dialog("//shop/Checkout", "//shop/OrderService").contract("//shop/Orders").await?;
//! tx.send(dialog, PLACE_ORDER, &PlaceOrder { sku: "A-1".into(), pieces: 3 }).await?;
//! tx.commit().await?;
//!
//! // The other takes the message, answers and ends its side: one commit again, or nothing at all.
//! let tx = broker.begin().await?;
//! if let Some(batch) = tx.receive("orders").wait(Duration::from_secs(5)).await? {
//!     for message in &batch {
//!         let order = message.decode(PLACE_ORDER)?;
//!         tx.send(message.handle(), ORDER_PLACED, &format!("{} x {}", order.pieces, order.sku)).await?;
//!         tx.end(message.handle()).await?;
//!     }
//! }
//! tx.commit().await?;
//!
//! let batch = broker.receive("checkout").await?.expect("the answer is there");
//! assert_eq!(batch.messages()[0].decode(ORDER_PLACED)?, "3 x A-1");
//! assert!(batch.messages()[1].is_end_dialog());
//! broker.end(dialog).await?;
//! # Ok(()) }
//! ```
//!
//! # Stores
//!
//! [`Broker::open`] takes the URL of a database. Its parameters, such as `?durability=normal`, are listed there.
//!
//! | URL | feature | the broker is |
//! |---|---|---|
//! | `sqlite:shop.db` | none | a file; all processes of one user on one machine may use it at the same time |
//! | `sqlite::memory:` | none | in memory, until it is closed |
//! | `postgres://user:password@host/database` | `postgres` | a schema `dialoq` in that database, for any number of hosts |
//! | `mssql://user:password@host/database` | `mssql` | the same on SQL Server; experimental, it has not run on one yet |
//!
//! The API is one for all of them. On PostgreSQL the verbs also work in a transaction that the application has already
//! (`postgres::Enlisted`). Another feature, `cli`, builds the command `dialoq`: `--features cli,postgres` for a server.
//! No feature is on by default. A [`Broker`] needs a tokio runtime with network and timers (`enable_all`, as `#[tokio::main]` has).
//!
//! # What is what
//!
//! | | |
//! |---|---|
//! | *message type* | a name and what a body must look like; [`MessageType`] adds the Rust type of the body |
//! | *contract* | which message types a conversation may carry, and which side may send each |
//! | *queue* | where messages wait; the view `queue_messages` shows them to any client of the database |
//! | *service* | the name that is addressed: a queue, and the contracts it accepts |
//! | *conversation* | two endpoints, one per side, each with its own [`ConversationHandle`], level, timer and lifetime |
//! | *conversation group* | conversations of one side that belong together: what RECEIVE takes from and locks; [`GroupId`] |
//! | *broker priority* | which conversations get which level, 1 (low) to 10 (high); [`Level`] |
//!
//! # At once, or together
//!
//! Every statement is a method of [`Act`]. On a [`Broker`] it commits at once; in a [`Tx`] everything, with the
//! application's own SQL ([`Tx::sql`]), commits together or not at all. A `Tx` borrows nothing and may be kept across
//! calls; dropping it is a rollback, and so is the end of the process. What was answered has been synced to the disk.
//!
//! A RECEIVE takes messages of one group, the highest level first, then the oldest, and locks the group to the end of
//! the transaction: no two readers ever hold messages of one conversation. Rolling back gives the messages back in their
//! old place. Five rollbacks in a row disable the queue, because such a message is poison; a queue with a retry policy
//! pauses between the attempts instead, and in the end sets the group or the message aside.
//!
//! # Waiting
//!
//! `receive(queue)` answers at once; [`.wait(duration)`](receive::Receive::wait) and
//! [`.wait_forever()`](receive::Receive::wait_forever) sleep until there is something. No message in time is
//! `Ok(None)`. In one process a commit wakes the receivers; other processes on a server are notified, and SQL Server is asked
//! every 100 ms while a receiver waits. [`Broker::stream`] makes a queue a stream of transactions.
//!
//! # Priorities and strategies
//!
//! Levels decide which group is served next. Where a whole class must not starve, or must never wait behind another, a
//! strategy decides which RECEIVE comes next: see [`receive::strategy`] and [`Broker::receive_by`].
//!
//! # Activation
//!
//! [`Broker::activate`] runs handlers by message type when there is work, at most so many at a time:
//! see [`activation`].
//!
//! # Work queues
//!
//! Jobs that need no conversation, with leases, retries and a dead letter: see [`work`].
//!
//! # Definitions
//!
//! [`Broker::ensure`] makes what is not there, at every start; [`Broker::define`] and [`Broker::execute`] (Service
//! Broker's own DDL) create, alter and drop; [`Broker::dump`] writes the script of what is there.
//!
//! # Errors
//!
//! There is one [`Error`]. It has a number ([`Error::code`]): Service Broker's where the condition is the same, and one from
//! 60001 otherwise. It has a class ([`Error::kind`]), says whether the same call may succeed later
//! ([`Error::is_retryable`]), and names in its message what was asked, what was found, and what to do. [`Code::ALL`] lists
//! all numbers. A failure that breaks a *conversation* is no error of a call: it arrives as a message, see
//! [`Message::error`](protocol::Message::error).
//!
//! # Monitoring
//!
//! [`Broker::status`] shows queues, readers and conversations; [`Broker::doctor`] finds faults; [`Broker::explain`] says why
//! a queue does not move; [`Broker::failed`] returns once the store takes nothing more. Counters, gauges and histograms go
//! to the recorder of the crate `metrics` that the application installs, and each verb has a span of the crate `tracing`.
//!
//! # Tests of your own
//!
//! [`testing`] opens brokers in memory, on a clock that stands still until the test moves it.
//!
//! # Pages
//!
//! The repository has more, by question in `docs/README.md`:
//!
//! | page | content |
//! |---|---|
//! | `docs/tutorial.md`, `examples` | the first fifteen minutes with the command; programs to run and read |
//! | `docs/semantics.md` | every rule, and each difference from Service Broker |
//! | `docs/work-queues.md`, `docs/classic-patterns.md` | jobs; the tables that people write by hand, and the same in Dialoq |
//! | `docs/priority.md` | strategies, their bounds, and how to choose |
//! | `docs/servers.md`, `docs/plain-sql.md`, `docs/sqlserver.md` | connections, settings, failures; verbs for other languages |
//! | `docs/deployment.md`, `docs/operations.md` | units, containers, health checks; files, backup, installation, activation |
//! | `docs/troubleshooting.md` | symptoms, and every error number with its cause and what to do |
//! | `docs/security.md`, `docs/reliability.md`, `docs/performance.md` | threats; faults that are tested; figures |

pub mod act;
pub mod activation;
mod broker;
pub mod catalog;
mod core;
pub mod define;
mod error;
mod id;
pub mod install;
#[doc(hidden)]
pub mod internals;
mod jsonl;
mod message;
#[cfg(feature = "mssql")]
pub mod mssql;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod protocol;
mod raised_gauge;
pub mod receive;
mod sql;
pub mod status;
mod store;
pub mod testing;
mod time;
mod trace;
mod tx;
pub mod work;

pub use crate::core::Repair;
pub use act::Act;
pub use broker::Broker;
pub use define::Level;
pub use error::{Code, Error, ErrorKind, Position, Result};
pub use id::{ConversationHandle, ConversationId, DeadLetterId, GroupId, IdSource, JobId, MessageId};
pub use message::{Batch, BrokerError, MessageType};
pub use protocol::Message;
pub use store::{AccessToken, FromSqlValue, Gathering, IntoSqlParams, OpenOptions, SqlRow, SqlRows, SqlValue};
pub use time::{Clock, Timestamp};
pub use tx::Tx;

/// The Rust in README.md, docs/priority.md, docs/work-queues.md and docs/classic-patterns.md runs with the tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/classic-patterns.md")]
    mod classic_patterns {}
    #[doc = include_str!("../docs/priority.md")]
    mod priority {}
    #[doc = include_str!("../docs/work-queues.md")]
    mod work_queues {}
}
