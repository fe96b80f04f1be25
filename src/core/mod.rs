//! The broker as a pure state machine: verbs in, outcomes and row changes out.
//!
//! No I/O, no clock of its own, no threads. A store feeds it verbs with the time, writes the [`Change`]s it answers, and
//! reads the bodies of the messages it names. It runs the embedded store, and it is the model other stores are compared with.

mod change;

pub use change::{Change, EndpointRow, MessageRow, Stored, TransmissionRow};

/*  THE SURFACE THAT STORES USE (being built; signatures are final unless announced)

pub struct Limits { pub max_body_bytes: usize /* 64 MiB */, pub closed_retention: Duration /* 30 min, rules 24-26 */, pub ... }

pub struct Core;                                             // the whole broker
impl Core {
    pub fn new(ids: IdSource, limits: Limits) -> Core;        // an empty broker with the built-ins
    pub fn install(&mut self, now: Timestamp, effects: &mut Effects);   // the rows of the built-ins and settings, for a new database
    pub fn catalog(&self) -> &Arc<Catalog>;                   // replaced whole when definitions commit
    pub fn begin(&mut self) -> Session;
    pub fn execute(&mut self, session: &mut Session, verb: Verb, now: Timestamp) -> Result<Step>;
    pub fn wait(&mut self, session: &Session, group: GroupKey) -> Result<()>;  // before parking a blocked transaction: registers the wait, or 1205 (then roll back)
    pub fn stop_waiting(&mut self, session: &Session);
    pub fn savepoint(&self, session: &Session) -> Savepoint;
    pub fn rollback_to(&mut self, session: &mut Session, savepoint: Savepoint);
    pub fn check_commit(&self, session: &Session) -> Result<()>;           // 8475 if a definition dropped an endpoint it used; else commit cannot fail
    pub fn commit(&mut self, session: Session, now: Timestamp, effects: &mut Effects);
    pub fn rollback(&mut self, session: Session, now: Timestamp, effects: &mut Effects);   // counts poison: may change rows
    pub fn tick(&mut self, now: Timestamp, effects: &mut Effects);         // timers, lifetimes, reclaim, at most a bounded number a call
    pub fn next_due(&self) -> Option<Timestamp>;                           // when tick has something to do; <= now means at once
    pub fn deliver(&mut self, row: TransmissionRow, now: Timestamp, effects: &mut Effects);  // for each id of Effects.redeliver, in order
    pub fn depth(&self, queue_id: i32) -> Depth;              // Depth { ready_groups: usize, unread: u64 }
}
pub struct Session;                                           // an open transaction (also each unit done at once runs in one)
pub struct GroupKey(u32);                                     // Copy + Eq + Hash
pub enum Step { Done(Reply), Blocked(GroupKey) }              // Blocked: nothing happened; try again when the group is in Effects.released
pub enum Reply { Outcome(Outcome), Rows(Vec<Taken>) }         // Rows: a RECEIVE; the store reads each row and makes the Message (before commit applies the deletes)
pub struct Taken { pub queuing_order: u64, ... }              // Taken::into_message(self, catalog, row: ReadRow) -> Message
pub struct ReadRow { message_type_id, message_id, enqueued_at, body: Option<Vec<u8>>, trace }
pub struct Effects {                                          // reusable; all Vecs are appended to
    pub changes: Vec<Change>,
    pub released: Vec<GroupKey>,                              // groups unlocked: retry who waits for them
    pub arrivals: Vec<Arrival>,                               // Arrival { queue_id, newly_ready: usize }: signal receivers after the commit
    pub redeliver: Vec<u64>,                                  // transmission ids to read and hand to Core::deliver in the same batch
    pub catalog_changed: bool,                                // publish the new catalog, wake everybody
}
pub struct Restore;                                           // recovery: rows in, a Core out
impl Restore {
    pub fn new(catalog: Catalog, ids: IdSource, limits: Limits) -> Restore;
    pub fn counters(&mut self, next_queuing_order: u64, next_endpoint_id: u64, next_transmission_id: u64);   // at least these; rows may push them further
    pub fn endpoint(&mut self, row: EndpointRow);
    pub fn received_up_to(&mut self, endpoint_id: u64, receive_sequence: u64);
    pub fn message(&mut self, queuing_order: u64, endpoint_id: u64, stored: Stored, sequence: u64);          // ascending queuing_order
    pub fn transmission(&mut self, transmission_id: u64, endpoint_id: u64, sequence: u64, held: bool);       // ascending transmission_id
    pub fn finish(self, now: Timestamp) -> Result<Core>;      // 60012 if the rows contradict each other
}
impl Core { pub fn counters(&self) -> (u64, u64, u64); }      // for the high-water marks the store keeps
*/
