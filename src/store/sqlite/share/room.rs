//! Room for the units of a guest that are under way: a flood waits in its callers and not in memory, as in the store.
//!
//! In the owner a unit that waits for a locked group gives its room back. A guest does not see that one waits. So a unit that is not
//! answered after [`WAITS_AFTER`] counts as one that waits if others want its room, and these have as much room again. And each
//! conversation has a part of the room only: senders on one that another transaction held, 16,384 or 256 MB of them, stopped all other
//! calls of their process until that transaction ended.

use super::lock;
use crate::protocol::{Relation, Unit, Verb};
use crate::store::sqlite::{ROOM, cost};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

/// The part of one conversation. A unit that costs more has it alone.
const PART: u32 = ROOM / 16;

/// A unit that is not answered after so long seems to wait for a locked group. A batch with its sync takes less on most disks.
const WAITS_AFTER: Duration = Duration::from_millis(100);

/// The room of one connection.
pub(super) struct Room {
    whole: Arc<Semaphore>,
    units: Mutex<Units>,
    /// Units that wait for room in the whole.
    wanting: AtomicUsize,
    wanted: Notify,
}

#[derive(Default)]
struct Units {
    /// With the number of units that wait for a part or have a share of it.
    parts: HashMap<Uuid, (Arc<Semaphore>, usize)>,
    last_id: u64,
    /// The oldest first.
    under_way: BTreeMap<u64, (Instant, OwnedSemaphorePermit)>,
    /// The cost of each unit that seems to wait for a group.
    waiting: HashMap<u64, u32>,
    cost_of_waiting: u32,
}

/// The share of one unit.
pub(super) struct Share<'r> {
    room: &'r Room,
    id: u64,
    _of_part: Option<(OwnedSemaphorePermit, Part<'r>)>,
}

/// The part of a conversation, kept while a unit of it waits or is under way.
struct Part<'r> {
    room: &'r Room,
    key: Uuid,
}

/// A unit that waits for room in the whole.
struct Wanting<'r>(&'r Room);

impl Room {
    pub(super) fn new() -> Self {
        Self {
            whole: Arc::new(Semaphore::new(ROOM as usize)),
            units: Mutex::default(),
            wanting: AtomicUsize::new(0),
            wanted: Notify::new(),
        }
    }

    /// Waits until there is room for a unit.
    ///
    /// # Errors
    /// The room is closed.
    pub(super) async fn take(&self, unit: &Unit) -> Result<Share<'_>, AcquireError> {
        let cost = cost(unit).min(ROOM);
        let of_part = match conversation(unit) {
            Some(key) => {
                let (semaphore, part) = self.part(key);
                Some((semaphore.acquire_many_owned(cost.min(PART)).await?, part))
            }
            None => None,
        };
        let permit = match self.whole.clone().try_acquire_many_owned(cost) {
            Ok(permit) => permit,
            Err(_) => {
                let _wanting = Wanting::new(self);
                self.whole.clone().acquire_many_owned(cost).await?
            }
        };
        let id = lock(&self.units).enter(permit);
        Ok(Share { room: self, id, _of_part: of_part })
    }

    /// Ends all waits.
    pub(super) fn close(&self) {
        self.whole.close();
        lock(&self.units).parts.values().for_each(|(part, _)| part.close());
    }

    /// Gives the room of units that seem to wait for a group to those that want it.
    pub(super) async fn make_room(&self) {
        loop {
            self.wanted.notified().await;
            while self.wanting.load(Relaxed) > 0 {
                if let Some(before) = Instant::now().checked_sub(WAITS_AFTER) {
                    self.set_aside(before);
                }
                tokio::time::sleep(WAITS_AFTER).await;
            }
        }
    }

    /// Units that are under way since then count as waiting, as far as there is room for these.
    fn set_aside(&self, before: Instant) {
        let given_back = lock(&self.units).set_aside(before);
        // Wakes those that want room.
        drop(given_back);
    }

    fn part(&self, key: Uuid) -> (Arc<Semaphore>, Part<'_>) {
        let mut units = lock(&self.units);
        let (semaphore, users) = units.parts.entry(key).or_insert_with(|| (Arc::new(Semaphore::new(PART as usize)), 0));
        *users += 1;
        (semaphore.clone(), Part { room: self, key })
    }
}

impl Units {
    fn enter(&mut self, permit: OwnedSemaphorePermit) -> u64 {
        self.last_id += 1;
        self.under_way.insert(self.last_id, (Instant::now(), permit));
        self.last_id
    }

    fn leave(&mut self, id: u64) -> Option<OwnedSemaphorePermit> {
        self.cost_of_waiting -= self.waiting.remove(&id).unwrap_or_default();
        self.under_way.remove(&id).map(|(_, permit)| permit)
    }

    fn set_aside(&mut self, before: Instant) -> Vec<OwnedSemaphorePermit> {
        let old = self.under_way.iter().take_while(|(_, (since, _))| *since <= before);
        let mut cost_of_waiting = self.cost_of_waiting;
        // One that does not fit goes all the same while there is room: else it kept the room of all others.
        let fits = |(id, (_, permit)): (&u64, &(Instant, OwnedSemaphorePermit))| {
            let cost = u32::try_from(permit.num_permits()).ok().filter(|_| cost_of_waiting < ROOM)?;
            cost_of_waiting += cost;
            Some((*id, cost))
        };
        let set_aside: Vec<_> = old.filter_map(fits).collect();
        self.cost_of_waiting = cost_of_waiting;
        self.waiting.extend(set_aside.iter().copied());
        set_aside.iter().filter_map(|(id, _)| self.under_way.remove(id)).map(|(_, permit)| permit).collect()
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let given_back = lock(&self.room.units).leave(self.id);
        drop(given_back);
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let parts = &mut lock(&self.room.units).parts;
        if let Some((_, users)) = parts.get_mut(&self.key) {
            *users -= 1;
            if *users == 0 {
                parts.remove(&self.key);
            }
        }
    }
}

impl<'r> Wanting<'r> {
    fn new(room: &'r Room) -> Self {
        room.wanting.fetch_add(1, Relaxed);
        room.wanted.notify_one();
        Self(room)
    }
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        self.0.wanting.fetch_sub(1, Relaxed);
    }
}

/// The first conversation or group that a unit names, for whose lock it may wait.
fn conversation(unit: &Unit) -> Option<Uuid> {
    unit.iter().find_map(|verb| match verb {
        Verb::Send { handles, .. } => handles.first().map(|handle| handle.0),
        Verb::SendEach(messages) => messages.first().map(|message| message.handle.0),
        Verb::BeginDialog(dialog) => match dialog.related {
            Relation::None => None,
            Relation::Conversation(handle) => Some(handle.0),
            Relation::Group(group) => Some(group.0),
        },
        Verb::MoveConversation { handle, .. }
        | Verb::EndConversation { handle, .. }
        | Verb::BeginConversationTimer { handle, .. }
        | Verb::CancelConversationTimer { handle }
        | Verb::Reprioritise { handle, .. } => Some(handle.0),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ConversationHandle;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn send(conversation: u128, bytes: usize) -> Unit {
        let handles = vec![ConversationHandle(Uuid::from_u128(conversation))];
        vec![Verb::Send { handles, message_type: None, body: Some(Arc::new(vec![0; bytes])), trace: None }]
    }

    fn take<'r>(room: &'r Room, unit: &Unit) -> Poll<Result<Share<'r>, AcquireError>> {
        let unit = unit.clone();
        pin!(async move { room.take(&unit).await }).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn taken<'r>(room: &'r Room, unit: &Unit) -> Option<Share<'r>> {
        match take(room, unit) {
            Poll::Ready(share) => Some(share.unwrap()),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_conversation_leaves_room_for_others() {
        let room = Room::new();
        let small: Vec<_> = (0..ROOM).map_while(|_| taken(&room, &send(1, 1))).collect();
        assert_eq!(small.len(), PART as usize);
        let large: Vec<_> = (0..9).map_while(|_| taken(&room, &send(2, 60 << 20))).collect();
        assert_eq!(large.len(), 1, "it costs more than the part");
        assert!(taken(&room, &send(3, 1)).is_some() && taken(&room, &Unit::new()).is_some());
        let all: Vec<_> = (0..ROOM).map_while(|_| taken(&room, &Unit::new())).collect();
        assert!(taken(&room, &send(3, 1)).is_none(), "the whole is bounded all the same: {}", all.len());
        drop((small, large, all));
        assert!(taken(&room, &send(1, 1)).is_some());
        assert!(lock(&room.units).parts.is_empty(), "a part lasts as long as its units");
        room.close();
        assert!(matches!(take(&room, &send(1, 1)), Poll::Ready(Err(_))));
    }

    #[test]
    fn units_that_wait_have_as_much_room_again() {
        let room = Room::new();
        let fill = || (0..2 * ROOM).map_while(|_| taken(&room, &Unit::new())).collect::<Vec<_>>();
        let start = Instant::now();
        let first = fill();
        assert_eq!(first.len(), ROOM as usize);
        room.set_aside(start);
        assert!(taken(&room, &Unit::new()).is_none(), "they are younger");
        room.set_aside(Instant::now());
        let second = fill();
        assert_eq!(second.len(), ROOM as usize);
        room.set_aside(Instant::now());
        assert!(taken(&room, &Unit::new()).is_none(), "twice the room is the most");
        drop(first);
        room.set_aside(Instant::now());
        assert!(taken(&room, &send(1, 200 << 20)).is_some(), "a large one among units that wait");
        drop(second);
        let units = lock(&room.units);
        assert_eq!((units.under_way.len(), units.waiting.len(), units.cost_of_waiting), (0, 0, 0));
        assert_eq!(room.whole.available_permits(), ROOM as usize);
    }

    #[tokio::test]
    async fn a_unit_gets_the_room_of_those_that_seem_to_wait_for_a_group() {
        let _limit = crate::testing::limit();
        let room = Room::new();
        let _all: Vec<_> = (0..ROOM).map_while(|_| taken(&room, &Unit::new())).collect();
        let large = send(1, 200 << 20);
        tokio::select! {
            () = room.make_room() => {}
            taken = room.take(&large) => assert!(taken.is_ok()),
        }
        assert_eq!(room.wanting.load(Relaxed), 0);
    }

    #[test]
    fn a_part_is_forgotten_when_many_threads_leave_it_at_once() {
        let _limit = crate::testing::limit();
        let room = Room::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..2000).for_each(|unit| drop(taken(&room, &send(unit / 2, 1)))));
            }
        });
        assert_eq!(lock(&room.units).parts.len(), 0);
    }

    #[tokio::test]
    async fn a_unit_that_waits_for_its_part_ends_with_the_room() {
        let _limit = crate::testing::limit();
        let room = Room::new();
        let unit = send(1, 60 << 20);
        let _first = room.take(&unit).await.unwrap();
        let mut second = pin!(room.take(&unit));
        assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        room.close();
        assert!(second.await.is_err());
    }

    #[test]
    fn a_unit_has_its_part_by_the_conversation_or_group_that_it_may_wait_for() {
        use crate::id::GroupId;
        use crate::protocol::{Addressee, BeginDialog, EndForm, OutgoingMessage};
        let (id, handle) = (Uuid::from_u128(1), ConversationHandle(Uuid::from_u128(1)));
        let dialog = |related| {
            let (from_service, to_service, addressee) = ("a".into(), "b".into(), Addressee::Anywhere);
            let (contract, lifetime_seconds, encryption) = (None, None, false);
            Verb::BeginDialog(BeginDialog {
                from_service,
                to_service,
                addressee,
                contract,
                related,
                lifetime_seconds,
                encryption,
            })
        };
        let verbs = vec![
            Verb::SendEach(vec![OutgoingMessage { handle, message_type: None, body: None, trace: None }]),
            dialog(Relation::Conversation(handle)),
            dialog(Relation::Group(GroupId(id))),
            Verb::MoveConversation { handle, group: GroupId(Uuid::from_u128(2)) },
            Verb::EndConversation { handle, form: EndForm::Plain },
            Verb::BeginConversationTimer { handle, timeout_seconds: 1 },
            Verb::CancelConversationTimer { handle },
            Verb::Reprioritise { handle, level: 1 },
        ];
        for verb in verbs {
            assert_eq!(conversation(&vec![dialog(Relation::None), verb.clone()]), Some(id), "{verb:?}");
        }
        assert_eq!(conversation(&vec![dialog(Relation::None)]), None);
    }
}
