-- The one table of the bare rival of `dialoq bench`.
-- takes nothing; gives nothing.
CREATE TABLE message (
    id   INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);
