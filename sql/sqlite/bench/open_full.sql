-- Prepares a connection of the bare rival of `dialoq bench`, durability full: every commit is synced.
-- takes nothing; gives nothing.
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
