-- Ends an attempt without a commit: counts the loss of a transaction that received and has ended without its reader's doing, as when
-- its connection is cut. Of transactions that are lost together a queue counts one (decision 0059). Does nothing if another session
-- has counted it already.
-- Takes: the attempt id; for how long it had received, in milliseconds, some seconds more or less (NULL: since its note)
-- Gives: notices
-- Errors: 1222 if another session keeps a row from being read or written for a second; then tick counts the loss
-- Locks: its groups if the queue has quarantine or a retry policy, without waiting; otherwise the count of the queue, 100 ms at most;
--     the definitions if a queue is disabled by this, 250 ms at most
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.count_loss
    @attempt_id uniqueidentifier, @age_ms int = NULL
AS
BEGIN
    -- <settings>
    -- On the same connection as begin_attempt.
    SET LOCK_TIMEOUT 1000;
    DECLARE @notices nvarchar(max), @lost_since datetime2(6) = SYSUTCDATETIME();
    -- The call may have waited for its connection. Five seconds were chosen, not measured: of one group each loss counts all the same.
    SET @lost_since = DATEADD(second, -5, @lost_since);
    SET @lost_since = DATEADD(millisecond, -CASE WHEN @age_ms > 0 THEN @age_ms ELSE 0 END, @lost_since);
    -- <transaction>
    EXEC dialoq.count_attempt @attempt_id, @lost_since, NULL, @notices OUTPUT;
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
