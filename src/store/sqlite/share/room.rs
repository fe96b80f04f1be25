//! Room for the units of a guest that are under way: a flood waits in its callers and not in memory, as in the store.
//!
//! In the owner a unit that waits for a locked group gives its room back. A guest does not see that one waits, so each conversation
//! has a part of the room only: senders on one that another transaction held, 16,384 or 256 MB of them, stopped all other calls of
//! their process until that transaction ended.

use super::lock;
use crate::id::ConversationHandle;
use crate::protocol::{Unit, Verb};
use crate::store::sqlite::{ROOM, cost};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The part of one conversation. A unit that costs more has it alone.
const PART: u32 = ROOM / 16;

/// The room of one connection.
pub(super) struct Room {
    whole: Arc<Semaphore>,
    parts: Mutex<HashMap<ConversationHandle, Arc<Semaphore>>>,
}

/// The share of one unit. The fields are dropped in their order.
pub(super) struct Share<'r> {
    _of_whole: OwnedSemaphorePermit,
    _of_part: Option<(OwnedSemaphorePermit, Part<'r>)>,
}

/// The part of a conversation, kept while a unit of it waits or is under way.
struct Part<'r> {
    room: &'r Room,
    handle: ConversationHandle,
    semaphore: Arc<Semaphore>,
}

impl Room {
    pub(super) fn new() -> Self {
        Self { whole: Arc::new(Semaphore::new(ROOM as usize)), parts: Mutex::default() }
    }

    /// Waits until there is room for a unit.
    ///
    /// # Errors
    /// The room is closed.
    pub(super) async fn take(&self, unit: &Unit) -> Result<Share<'_>, AcquireError> {
        let cost = cost(unit);
        let of_part = match conversation(unit) {
            Some(handle) => {
                let part = self.part(handle);
                Some((part.semaphore.clone().acquire_many_owned(cost.min(PART)).await?, part))
            }
            None => None,
        };
        let of_whole = self.whole.clone().acquire_many_owned(cost.min(ROOM)).await?;
        Ok(Share { _of_whole: of_whole, _of_part: of_part })
    }

    /// Ends all waits.
    pub(super) fn close(&self) {
        self.whole.close();
        lock(&self.parts).values().for_each(|part| part.close());
    }

    fn part(&self, handle: ConversationHandle) -> Part<'_> {
        let new = || Arc::new(Semaphore::new(PART as usize));
        let semaphore = lock(&self.parts).entry(handle).or_insert_with(new).clone();
        Part { room: self, handle, semaphore }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let mut parts = lock(&self.room.parts);
        // The map and this one have it.
        if Arc::strong_count(&self.semaphore) == 2 {
            parts.remove(&self.handle);
        }
    }
}

/// The first conversation that a unit names.
fn conversation(unit: &Unit) -> Option<ConversationHandle> {
    unit.iter().find_map(|verb| match verb {
        Verb::Send { handles, .. } => handles.first().copied(),
        Verb::SendEach(messages) => messages.first().map(|message| message.handle),
        Verb::MoveConversation { handle, .. }
        | Verb::EndConversation { handle, .. }
        | Verb::BeginConversationTimer { handle, .. }
        | Verb::CancelConversationTimer { handle }
        | Verb::Reprioritise { handle, .. } => Some(*handle),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use uuid::Uuid;

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
        assert!(lock(&room.parts).is_empty(), "a part lasts as long as its units");
        room.close();
        assert!(matches!(take(&room, &send(1, 1)), Poll::Ready(Err(_))));
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
}
