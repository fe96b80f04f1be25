//! The broker's state and the few functions through which all other modules reach it.

use super::change::Change;
use super::claim_unit::Units;
use super::dead_letter::DeadLetter;
use super::effects::{Depth, Effects};
use super::endpoint::{Endpoint, NONE, RareFields};
use super::group_lock::Group;
use super::lookup::Lookup;
use super::own_groups::OpenSession;
use super::receive_order::QueueState;
use super::session::Session;
use super::slab::Slab;
use super::work::Work;
use crate::catalog::Catalog;
use crate::catalog::body::BodyChecks;
use crate::id::{ConversationHandle, IdSource};
use crate::time::Timestamp;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Limits of a broker, beyond the rules of Service Broker.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The largest message body, in bytes. Default 64 MiB.
    pub max_body_bytes: usize,
    /// How long a closed target endpoint is kept after its security timestamp was set. Default 30 minutes.
    pub closed_retention: Duration,
    /// How long a closed target endpoint is kept if its initiator never got a message of it. `None`, the default, is until
    /// the conversation's LIFETIME, as Service Broker leaks it.
    pub unconfirmed_retention: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_body_bytes: 64 << 20, closed_retention: Duration::from_secs(30 * 60), unconfirmed_retention: None }
    }
}

/// The whole broker: definitions, endpoints, groups, ready rows, locks.
#[expect(missing_debug_implementations, reason = "not public, and too much to print")]
pub struct Core {
    pub(super) catalog: Arc<Catalog>,
    pub(super) lookup: Lookup,
    pub(super) ids: IdSource,
    pub(super) limits: Limits,
    pub(super) body_checks: Arc<BodyChecks>,
    pub(super) endpoints: Slab<Endpoint>,
    pub(super) groups: Slab<Group>,
    pub(super) by_handle: HashTable<u32>,
    pub(super) by_group_id: HashTable<u32>,
    pub(super) hash: DefaultHashBuilder,
    pub(super) queues: HashMap<i32, QueueState>,
    pub(super) names: Names,
    /// Endpoints by the moment of their next timer, lifetime or reclaim; at one moment the oldest first, by endpoint
    /// id.
    pub(super) due: BTreeSet<(i64, u64, u32)>,
    /// Endpoints whose outbox is not empty, by endpoint id.
    pub(super) outboxes: BTreeMap<u64, u32>,
    /// By queuing order.
    pub(super) dead_letters: BTreeMap<u64, DeadLetter>,
    /// The transmission queue has not been checked since the broker was restored.
    pub(super) is_restored: bool,
    pub(super) sessions: Slab<OpenSession>,
    pub(super) spare: Option<Session>,
    pub(super) touched: Touched,
    pub(super) next_queuing_order: u64,
    pub(super) next_endpoint_id: u64,
    pub(super) next_transmission_id: u64,
    pub(super) units: Units,
    pub(super) work: Work,
    /// The queues of the definition that was blocked last, for [`Core::definition_waits`].
    pub(super) blocked_queues: Vec<i32>,
    /// The queues whose receives a definition holds back, each with the end of that.
    pub(super) holds: BTreeSet<(Timestamp, i32)>,
    /// How many losses of sessions have counted, for the order of those and of receives.
    pub(super) losses: u64,
}

/// The endpoints a commit touched, each written once at its end.
#[derive(Debug, Default)]
pub(super) struct Touched {
    pub(super) dirty: Vec<u32>,
    pub(super) drained: Vec<u32>,
}

/// Names of far services, each held once, as long as an endpoint names it.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Each name with its number of endpoints; a count of 0 is a free place.
    all: Vec<(Arc<str>, u32)>,
    places: HashMap<Arc<str>, u32>,
    free: Vec<u32>,
}

impl Names {
    /// The place of a name, counting one more endpoint.
    pub(super) fn place(&mut self, name: &Arc<str>) -> u32 {
        if let Some(&place) = self.places.get(name) {
            self.all[place as usize].1 += 1;
            return place;
        }
        let entry = (name.clone(), 1);
        let place = match self.free.pop() {
            Some(place) => {
                self.all[place as usize] = entry;
                place
            }
            None => {
                self.all.push(entry);
                u32::try_from(self.all.len() - 1).expect("fewer than 4 billion service names")
            }
        };
        self.places.insert(name.clone(), place);
        place
    }

    /// The place of a name in use.
    pub(super) fn find(&self, name: &str) -> Option<u32> {
        self.places.get(name).copied()
    }

    /// Counts one more use of the name at a place.
    pub(super) fn hold(&mut self, place: u32) {
        self.all[place as usize].1 += 1;
    }

    /// Removes one use of a name; the name goes with its last endpoint.
    pub(super) fn release(&mut self, place: u32) {
        let (name, count) = &mut self.all[place as usize];
        *count -= 1;
        if *count == 0 {
            self.places.remove(name);
            *name = Arc::default();
            self.free.push(place);
        }
    }

    pub(super) fn name(&self, place: u32) -> &Arc<str> {
        &self.all[place as usize].0
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.places.len(), self.all.len())
    }
}

impl Core {
    /// An empty broker with the built-in types and contracts.
    pub fn new(mut ids: IdSource, limits: Limits) -> Self {
        let catalog = Catalog::with_builtins(ids.next_id());
        Self::over(catalog, ids, limits)
    }

    pub(super) fn over(catalog: Catalog, ids: IdSource, limits: Limits) -> Self {
        let mut core = Self {
            lookup: Lookup::new(&catalog),
            queues: HashMap::new(),
            units: Units::default(),
            work: Work::new(&catalog),
            catalog: Arc::new(catalog),
            ids,
            limits,
            body_checks: Arc::default(),
            endpoints: Slab::default(),
            groups: Slab::default(),
            by_handle: HashTable::new(),
            by_group_id: HashTable::new(),
            hash: DefaultHashBuilder::default(),
            names: Names::default(),
            due: BTreeSet::new(),
            outboxes: BTreeMap::new(),
            dead_letters: BTreeMap::new(),
            is_restored: false,
            sessions: Slab::default(),
            spare: None,
            touched: Touched::default(),
            next_queuing_order: 1,
            next_endpoint_id: 1,
            next_transmission_id: 1,
            blocked_queues: Vec::new(),
            holds: BTreeSet::new(),
            losses: 0,
        };
        // Session 0 is no session: it marks an unlocked group.
        core.sessions.insert(OpenSession::default());
        core
    }

    /// The rows of the built-ins and the settings, for a new database.
    pub fn install(&self, effects: &mut Effects) {
        let catalog = &self.catalog;
        effects.changes.extend(catalog.message_types.values().cloned().map(Change::PutMessageType));
        effects.changes.extend(catalog.contracts.values().cloned().map(Change::PutContract));
        effects.changes.extend(catalog.services.values().cloned().map(Change::PutService));
        effects.changes.push(Change::PutSettings(catalog.settings));
        effects.catalog_changed = true;
    }

    /// The definitions as of the last commit.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The next queuing order, endpoint id and transmission id: a store keeps marks above them so that none is used
    /// twice.
    pub fn counters(&self) -> (u64, u64, u64) {
        (self.next_queuing_order, self.next_endpoint_id, self.next_transmission_id)
    }

    /// The checks of bodies: a store checks with them before it takes its lock.
    pub fn body_checks(&self) -> &Arc<BodyChecks> {
        &self.body_checks
    }

    /// The largest body that SEND takes.
    pub fn max_body_bytes(&self) -> usize {
        self.limits.max_body_bytes
    }

    /// How deep a queue is.
    pub fn depth(&self, queue_id: i32) -> Depth {
        if let Some(jobs) = self.work.ready_jobs(queue_id) {
            return Depth { ready_groups: jobs, unread: jobs as u64 };
        }
        self.queues.get(&queue_id).map_or_else(Depth::default, |queue| Depth {
            ready_groups: if queue.is_held() { 0 } else { queue.ready.len() },
            unread: queue.unread,
        })
    }

    pub(super) fn set_catalog(&mut self, catalog: Arc<Catalog>) {
        self.lookup = Lookup::new(&catalog);
        self.catalog = catalog;
    }

    pub(super) fn queue_state(&mut self, queue_id: i32) -> &mut QueueState {
        self.queues.entry(queue_id).or_default()
    }

    // Endpoints and groups by id.

    pub(super) fn find(&self, handle: Uuid) -> Option<u32> {
        let hash = self.hash.hash_one(handle);
        self.by_handle.find(hash, |place| self.endpoints[*place].handle == handle).copied()
    }

    /// The endpoint of a handle that an application may name; the broker's own conversations are excluded.
    pub(super) fn find_open(&self, handle: ConversationHandle) -> Option<u32> {
        self.find(handle.0).filter(|place| !self.endpoints[*place].is_system)
    }

    /// The endpoint of a handle that this session may name. A conversation that another session has begun and not
    /// committed is not there yet.
    pub(super) fn find_for(&self, session: &Session, handle: ConversationHandle) -> Option<u32> {
        self.find_open(handle).filter(|place| self.is_visible(session, *place))
    }

    /// Whether an endpoint is committed, or begun by this session: the session that begins one holds its group.
    fn is_visible(&self, session: &Session, place: u32) -> bool {
        let endpoint = &self.endpoints[place];
        !endpoint.is_uncommitted || self.groups[endpoint.group].owner == session.id
    }

    /// The group of an id, if it has a conversation visible to this session.
    pub(super) fn find_group_for(&self, session: &Session, id: Uuid) -> Option<u32> {
        self.find_group(id).filter(|group| self.has_visible_member(session, *group))
    }

    pub(super) fn has_visible_member(&self, session: &Session, group: u32) -> bool {
        let is_in_it = |place: u32| session.group_of(place, &self.endpoints[place]) == group;
        self.groups[group].members.iter().any(|place| self.is_visible(session, *place) && is_in_it(*place))
            || session.moved_into(group).next().is_some()
    }

    pub(super) fn find_group(&self, id: Uuid) -> Option<u32> {
        let hash = self.hash.hash_one(id);
        self.by_group_id.find(hash, |place| self.groups[*place].id == id).copied()
    }

    pub(super) fn add_endpoint(&mut self, endpoint: Endpoint) -> u32 {
        let (handle, group) = (endpoint.handle, endpoint.group);
        let place = self.endpoints.insert(endpoint);
        let (endpoints, hasher) = (&self.endpoints, &self.hash);
        self.by_handle.insert_unique(hasher.hash_one(handle), place, |other| hasher.hash_one(endpoints[*other].handle));
        self.groups[group].members.push(place);
        place
    }

    pub(super) fn group_place(&mut self, id: Uuid, service_id: i32, queue_id: i32) -> u32 {
        if let Some(place) = self.find_group(id) {
            return place;
        }
        let group = Group {
            id,
            service_id,
            queue_id,
            owner: 0,
            rollbacks: 0,
            is_set_aside_later: false,
            is_stale: false,
            members: Default::default(),
            ready: None,
        };
        let place = self.groups.insert(group);
        let (groups, hasher) = (&self.groups, &self.hash);
        self.by_group_id.insert_unique(hasher.hash_one(id), place, |other| hasher.hash_one(groups[*other].id));
        place
    }

    /// Takes an endpoint out of memory, and its group with it if it was the last. The caller removes the rows.
    pub(super) fn remove_endpoint(&mut self, place: u32) -> Endpoint {
        self.set_due(place, 0);
        let endpoint_id = self.endpoints[place].endpoint_id;
        self.outboxes.remove(&endpoint_id);
        let handle = self.endpoints[place].handle;
        let hash = self.hash.hash_one(handle);
        if let Ok(entry) = self.by_handle.find_entry(hash, |other| *other == place) {
            entry.remove();
        }
        let endpoint = self.endpoints.remove(place).expect("the endpoint is there: its handle was just read");
        if endpoint.peer != NONE {
            self.endpoints[endpoint.peer].peer = NONE;
        }
        self.names.release(endpoint.far_service);
        self.leave_group(place, endpoint.group);
        endpoint
    }

    pub(super) fn leave_group(&mut self, place: u32, group: u32) {
        let members = &mut self.groups[group].members;
        if let Some(position) = members.iter().position(|member| *member == place) {
            members.swap_remove(position);
        }
        // A locked group is removed when it is unlocked, so that its key stays good for its holder.
        if self.groups[group].owner == 0 {
            if self.groups[group].members.is_empty() {
                self.remove_group(group);
            } else {
                self.rerank(group);
            }
        }
    }

    pub(super) fn remove_group(&mut self, group: u32) {
        self.unready(group);
        let hash = self.hash.hash_one(self.groups[group].id);
        if let Ok(entry) = self.by_group_id.find_entry(hash, |other| *other == group) {
            entry.remove();
        }
        self.groups.remove(group);
    }

    // What a commit writes.

    pub(super) fn mark_dirty(&mut self, place: u32) {
        if !std::mem::replace(&mut self.endpoints[place].is_dirty, true) {
            self.touched.dirty.push(place);
        }
    }

    /// Writes every touched endpoint once.
    pub(super) fn write_touched(&mut self, effects: &mut Effects) {
        let Touched { mut dirty, mut drained } = std::mem::take(&mut self.touched);
        for place in drained.drain(..) {
            // A dirty endpoint's row has the number already; a removed one needs none.
            if let Some(endpoint) = self.endpoints.get(place).filter(|endpoint| !endpoint.is_dirty) {
                effects.changes.push(Change::NoteReceiveSequence {
                    endpoint_id: endpoint.endpoint_id,
                    receive_sequence: endpoint.receive_sequence,
                });
            }
        }
        for place in dirty.drain(..) {
            if let Some(endpoint) = self.endpoints.get(place) {
                let group = &self.groups[endpoint.group];
                let row = endpoint.to_row(group.id, group.rollbacks, self.names.name(endpoint.far_service).clone());
                effects.changes.push(Change::PutEndpoint(Box::new(row)));
                let endpoint = &mut self.endpoints[place];
                (endpoint.is_dirty, endpoint.is_stored) = (false, true);
            }
        }
        self.touched = Touched { dirty, drained };
    }

    pub(super) fn rare_fields(&mut self, place: u32) -> &mut RareFields {
        self.endpoints[place].rare_fields_mut()
    }
}
