//! The verbs, the same for a broker and for a transaction.
