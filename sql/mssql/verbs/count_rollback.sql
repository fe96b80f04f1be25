-- Ends an attempt without a commit: counts the rollback of a transaction that received. Does nothing if another session has
-- counted it already.
-- Takes: the attempt id; why it was rolled back (NULL: not known), for messages that become dead letters by this; for how many milliseconds
--     to wait for its end, 60000 at most
-- Gives: notices
-- Errors: 60005; 1222 if another session keeps a row from being read or written for a second; then tick counts the rollback
-- Locks: its groups if the queue has quarantine or a retry policy, without waiting; otherwise the count of the queue, 100 ms at most;
--     the definitions if a queue is disabled by this, 250 ms at most. With a wait, before these: the first of its groups, for so
--     long
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.count_rollback
    @attempt_id uniqueidentifier, @reason nvarchar(max) = NULL, @wait_ms int = 0
AS
BEGIN
    -- <settings>
    -- On the same connection as begin_attempt.
    SET LOCK_TIMEOUT 1000;
    DECLARE @notices nvarchar(max), @group uniqueidentifier, @got int, @resource nvarchar(255), @text nvarchar(2048);
    IF @wait_ms IS NULL OR @wait_ms NOT BETWEEN 0 AND 60000
    BEGIN
        SET @text = CONCAT(N'@wait_ms is ', COALESCE(CAST(@wait_ms AS nvarchar(20)), N'NULL'), N'; it must be 0 to 60000');
        THROW 60005, @text, 1;
    END
    -- <transaction>
    -- Its groups are free at its end, and the next in the line is this count: a pause begins before another receiver has the group. It waits
    -- for one only: while it kept that and waited for the next, a receiver could want both in the other order, and be the one to give way.
    IF @wait_ms > 0
        SELECT TOP (1) @group = a.conversation_group_id
        FROM dialoq.receive_attempt AS a WITH (INDEX (receive_attempt_attempt), FORCESEEK)
        WHERE a.attempt_id = @attempt_id ORDER BY a.conversation_group_id;
    IF @group IS NOT NULL
    BEGIN
        SET @resource = CONCAT(N'dialoq:group:', @group);
        EXEC @got = sp_getapplock
            @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = @wait_ms,
            @DbPrincipal = N'dialoq_user';
    END
    EXEC dialoq.count_attempt @attempt_id, NULL, @reason, @notices OUTPUT;
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
