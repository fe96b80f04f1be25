-- Locks of conversation groups are taken for the session from now on, because a rollback to a savepoint gives back the
-- transaction's own; dialoq.unlock_session ends it.
-- Takes: nothing.
-- Gives: nothing.
EXEC sp_set_session_context @key = N'dialoq.session_locks', @value = 1;
