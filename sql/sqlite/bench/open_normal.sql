-- Prepares a connection of the bare rival of `dialoq bench`, durability normal: only checkpoints are synced.
-- takes nothing; gives nothing.
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
