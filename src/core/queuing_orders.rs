//! The queuing orders of one conversation's waiting rows, packed.
//!
//! A row costs the length of its distance to the row before it: one byte when a conversation has the queue to itself,
//! two when up to 16,000 rows of others lie between. A million waiting rows in 1,000 conversations take 2 MiB. So every
//! read and delete is by key, and the tables need no index that each send would have to write.

/// The queuing orders of an endpoint's messages: an ascending list, taken from the front, added at the back.
#[derive(Debug, Default, Clone)]
pub(super) struct QueuingOrders {
    first: u64,
    len: u32,
    rest: Option<Box<Packed>>,
}

#[derive(Debug, Default, Clone)]
struct Packed {
    bytes: Vec<u8>,
    head: usize,
    last: u64,
}

/// A place in the list, counted from the front: it stays good while rows are added.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Position {
    /// Rows before it.
    pub(super) rows: u32,
    /// The order of the last of them.
    last: u64,
    /// The place of the next distance.
    offset: usize,
}

impl QueuingOrders {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn first(&self) -> Option<u64> {
        (self.len > 0).then_some(self.first)
    }

    pub(super) fn push(&mut self, order: u64) {
        if self.len == 0 {
            self.first = order;
        } else {
            let first = self.first;
            let rest = self.rest.get_or_insert_default();
            let last = if self.len == 1 { first } else { rest.last };
            debug_assert!(order > last, "queuing orders ascend: {order} after {last}");
            let mut distance = order - last;
            while distance >= 0x80 {
                rest.bytes.push(distance as u8 | 0x80);
                distance >>= 7;
            }
            rest.bytes.push(distance as u8);
            rest.last = order;
        }
        self.len += 1;
    }

    pub(super) fn pop(&mut self) -> Option<u64> {
        let taken = self.first()?;
        self.len -= 1;
        if self.len == 0 {
            self.rest = None;
        } else if let Some(rest) = &mut self.rest {
            let (distance, length) = decode(&rest.bytes[rest.head..]);
            self.first = taken + distance;
            rest.head += length;
            // Half the buffer is spent: moving the rest costs one copy per byte ever written.
            if rest.head >= 64 && rest.head * 2 >= rest.bytes.len() {
                rest.bytes.drain(..rest.head);
                rest.head = 0;
            }
        }
        Some(taken)
    }

    /// The order at a position, which moves on.
    pub(super) fn next(&self, position: &mut Position) -> Option<u64> {
        if position.rows >= self.len {
            return None;
        }
        if position.rows == 0 {
            position.last = self.first;
        } else if let Some(rest) = &self.rest {
            let (distance, length) = decode(&rest.bytes[rest.head + position.offset..]);
            position.last += distance;
            position.offset += length;
        }
        position.rows += 1;
        #[cfg(test)]
        tests::READ.set(read() + 1);
        Some(position.last)
    }

    /// All from the front.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let mut position = Position::default();
        std::iter::from_fn(move || self.next(&mut position))
    }
}

/// How many orders this thread has read.
#[cfg(test)]
pub(super) fn read() -> u64 {
    tests::READ.get()
}

fn decode(bytes: &[u8]) -> (u64, usize) {
    let mut value = 0;
    for (place, byte) in bytes.iter().enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return (value, place + 1);
        }
    }
    (value, bytes.len())
}

#[cfg(test)]
mod tests {
    use super::QueuingOrders;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::VecDeque;

    thread_local! {
        /// Orders read by this thread.
        pub(super) static READ: Cell<u64> = const { Cell::new(0) };
    }

    proptest! {
        #![proptest_config(dialoq_test_support::seeds::config(256))]

        #[test]
        fn behaves_as_a_plain_list(steps in proptest::collection::vec((0u64..1 << 40, 0usize..3), 0..300)) {
            let (mut orders, mut plain, mut next) = (QueuingOrders::default(), VecDeque::new(), 0);
            for (distance, pops) in steps {
                next += distance + 1;
                orders.push(next);
                plain.push_back(next);
                for _ in 0..pops.min(2) {
                    prop_assert_eq!(orders.pop(), plain.pop_front());
                }
                prop_assert_eq!(orders.len() as usize, plain.len());
                prop_assert_eq!(orders.first(), plain.front().copied());
                prop_assert!(orders.iter().eq(plain.iter().copied()));
            }
        }
    }
}
