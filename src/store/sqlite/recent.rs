//! The latest messages and jobs, kept in memory for a short while: a receiver that keeps up with the senders reads no
//! table.
//!
//! Bounded by rows and by bytes, whatever the depth of the queues. All other rows are read by key.

use crate::core::{JobRead, JobRow, MessageRow, ReadRow};
use std::collections::VecDeque;

/// The most rows kept.
const MOST_ROWS: usize = 8192;

/// The most bytes of bodies kept.
const MOST_BYTES: usize = 4 << 20;

/// A body above this size would push out too many others.
const MOST_BODY_BYTES: usize = 64 << 10;

/// A row that can be kept.
pub(super) trait Numbered {
    /// What its reader needs of it.
    type Read;

    /// Its key, which ascends nearly without gaps.
    fn number(&self) -> u64;

    /// The bytes of its body.
    fn body_bytes(&self) -> usize;

    /// The row as it would be read.
    fn read(&self) -> Self::Read;
}

impl Numbered for MessageRow {
    type Read = ReadRow;

    fn number(&self) -> u64 {
        self.queuing_order
    }

    fn body_bytes(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.len())
    }

    fn read(&self) -> ReadRow {
        ReadRow {
            message_type_id: self.message_type_id,
            message_id: self.message_id,
            enqueued_at: self.enqueued_at,
            body: self.body.as_ref().map(|body| body.to_vec()),
            trace: self.trace.clone(),
        }
    }
}

/// Until its first failure, which writes the reason into the row.
impl Numbered for JobRow {
    type Read = JobRead;

    fn number(&self) -> u64 {
        self.job_id
    }

    fn body_bytes(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.len())
    }

    fn read(&self) -> JobRead {
        let body = self.body.as_ref().map(|body| body.to_vec());
        JobRead { pushed_by: self.pushed_by.clone(), last_error: None, body }
    }
}

/// Rows by their numbers.
#[derive(Debug)]
pub(super) struct Recent<R> {
    first: u64,
    rows: VecDeque<Option<Box<R>>>,
    bytes: usize,
}

impl<R> Default for Recent<R> {
    fn default() -> Self {
        Self { first: 0, rows: VecDeque::new(), bytes: 0 }
    }
}

impl<R: Numbered> Recent<R> {
    /// Keeps a row that was written.
    pub(super) fn keep(&mut self, row: Box<R>) {
        let size = row.body_bytes();
        let next = self.first + self.rows.len() as u64;
        if size > MOST_BODY_BYTES || row.number() < next {
            return;
        }
        let gap = row.number() - next;
        if self.rows.is_empty() || gap > MOST_ROWS as u64 {
            *self = Self { first: row.number(), ..Self::default() };
        } else {
            self.rows.extend((0..gap).map(|_| None));
        }
        self.rows.push_back(Some(row));
        self.bytes += size;
        while self.rows.len() > MOST_ROWS || self.bytes > MOST_BYTES {
            if let Some(row) = self.rows.pop_front().flatten() {
                self.bytes -= row.body_bytes();
            }
            self.first += 1;
        }
    }

    /// The table row of that number, if it is here.
    pub(super) fn read(&self, number: u64) -> Option<R::Read> {
        Some(self.rows.get(self.place(number)?)?.as_ref()?.read())
    }

    /// Drops a row that was deleted or changed.
    pub(super) fn forget(&mut self, number: u64) {
        let Some(place) = self.place(number) else { return };
        if let Some(row) = self.rows.get_mut(place).and_then(Option::take) {
            self.bytes -= row.body_bytes();
        }
        while let Some(None) = self.rows.front() {
            self.rows.pop_front();
            self.first += 1;
        }
    }

    fn place(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::DeliveryClass;
    use crate::id::MessageId;
    use crate::protocol::work::JobState;
    use crate::time::Timestamp;
    use std::sync::Arc;
    use uuid::Uuid;

    fn row(queuing_order: u64, bytes: usize) -> Box<MessageRow> {
        Box::new(MessageRow {
            queuing_order,
            endpoint_id: 1,
            delivery_class: DeliveryClass::Sequenced,
            sequence: 0,
            message_type_id: 1,
            message_id: MessageId(Uuid::from_u128(queuing_order.into())),
            enqueued_at: Timestamp(0),
            body: Some(Arc::new(vec![0; bytes])),
            trace: None,
        })
    }

    fn has(recent: &Recent<MessageRow>, queuing_order: u64) -> bool {
        let found = recent.read(queuing_order);
        assert!(found.as_ref().is_none_or(|row| row.message_id.0.as_u128() == queuing_order.into()));
        found.is_some()
    }

    #[test]
    fn rows_are_found_until_they_are_deleted() {
        let mut recent = Recent::default();
        for order in [10, 11, 14] {
            recent.keep(row(order, 5));
        }
        assert!(has(&recent, 10) && has(&recent, 11) && has(&recent, 14));
        assert!(!has(&recent, 9) && !has(&recent, 12) && !has(&recent, 15));
        recent.forget(11);
        recent.forget(10);
        recent.forget(99);
        assert!(!has(&recent, 10) && !has(&recent, 11) && has(&recent, 14));
        recent.forget(14);
        assert_eq!((recent.bytes, recent.rows.len()), (0, 0));
        recent.keep(row(15, 5));
        assert!(has(&recent, 15));
        recent.keep(row(1_000_000, 5));
        assert!(has(&recent, 1_000_000) && !has(&recent, 15));
    }

    #[test]
    fn the_bounds_are_exact() {
        let most = MOST_ROWS as u64;
        let mut recent = Recent::default();
        (1..=most).for_each(|order| recent.keep(row(order, 1)));
        assert!(has(&recent, 1), "as many rows as may be kept");
        recent.keep(row(most + 1, 1));
        assert!(!has(&recent, 1) && has(&recent, 2) && has(&recent, most + 1));
        recent.keep(row(5, 1));
        assert_eq!((recent.first, recent.rows.len(), recent.bytes), (2, MOST_ROWS, MOST_ROWS));
        recent.keep(row(1_000_000, 3));
        assert_eq!((recent.first, recent.rows.len(), recent.bytes), (1_000_000, 1, 3), "a gap is not filled up");

        let mut recent = Recent::default();
        let bodies = (MOST_BYTES / MOST_BODY_BYTES) as u64;
        (1..=bodies).for_each(|order| recent.keep(row(order, MOST_BODY_BYTES)));
        assert!(has(&recent, 1), "as many bytes as may be kept");
        recent.keep(row(bodies + 1, 1));
        assert!(!has(&recent, 1) && has(&recent, 2) && has(&recent, bodies + 1));
        assert_eq!(recent.bytes, MOST_BYTES - MOST_BODY_BYTES + 1);
        recent.forget(3);
        assert_eq!(recent.bytes, MOST_BYTES - 2 * MOST_BODY_BYTES + 1);
        assert_eq!(recent.first, 2);
        recent.forget(2);
        assert_eq!(recent.first, 4, "what is deleted at the front leaves no place");
    }

    #[test]
    fn it_stays_small() {
        let mut recent = Recent::default();
        (1..20_000).for_each(|order| recent.keep(row(order, 1)));
        assert!(recent.rows.len() <= MOST_ROWS && has(&recent, 19_999) && !has(&recent, 1));
        (20_000..21_000).for_each(|order| recent.keep(row(order, 60_000)));
        assert!(recent.bytes <= MOST_BYTES && has(&recent, 20_999));
        recent.keep(row(21_000, MOST_BODY_BYTES + 1));
        assert!(!has(&recent, 21_000));
        recent.keep(row(21_001, 1));
        assert!(has(&recent, 21_001));
    }

    #[test]
    fn a_job_is_found_by_its_number_and_counts_by_its_body() {
        let _limit = crate::testing::limit();
        let mut recent = Recent::default();
        recent.keep(Box::new(JobRow {
            job_id: 7,
            queue_id: 1,
            job_type: "".into(),
            key: None,
            level: 5,
            state: JobState::Ready,
            attempts: 0,
            token: 0,
            at: None,
            pushed_at: Timestamp(0),
            pushed_by: "writer".into(),
            unique_key: None,
            unique_until: None,
            body: Some(Arc::new(vec![0; 5])),
        }));
        assert_eq!(recent.read(7).unwrap().body.unwrap().len(), 5);
        assert!(recent.read(0).is_none() && recent.read(1).is_none());
        assert_eq!(recent.bytes, 5);
    }
}
