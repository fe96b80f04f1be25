-- Ends an attempt without a commit: counts the rollback of a transaction that received. Does nothing if another session has
-- counted it already.
-- Takes: the attempt id; why it was rolled back (NULL: not known), for messages that become dead letters by this
-- Gives: notices
-- Errors: 1222 if another session keeps a row from being read or written for a second; then tick counts the rollback
-- Locks: its groups if the queue has quarantine or a retry policy, without waiting; otherwise the count of the queue, 100 ms at most;
--     the definitions if a queue is disabled by this, 250 ms at most
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.count_rollback
    @attempt_id uniqueidentifier, @reason nvarchar(max) = NULL
AS
BEGIN
    -- <settings>
    -- On the same connection as begin_attempt.
    SET LOCK_TIMEOUT 1000;
    DECLARE @notices nvarchar(max);
    -- <transaction>
    EXEC dialoq.count_attempt @attempt_id, NULL, @reason, @notices OUTPUT;
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
