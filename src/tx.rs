//! Transactions: verbs and the user's own SQL in one commit.
