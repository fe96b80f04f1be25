-- The table in which the user's transaction notes each message that it receives.
-- takes nothing; gives nothing.
CREATE TABLE IF NOT EXISTS bench_row (
    id     INTEGER PRIMARY KEY,
    length INTEGER NOT NULL
)
