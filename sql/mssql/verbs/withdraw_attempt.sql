-- Takes back the records of a transaction that is about to roll back, and of which no caller has seen a message: its rollback does
-- not count.
-- Takes: the attempt id
-- Gives: nothing
-- Errors: 1222 if another session keeps a row from being deleted for a second, and then the rollback counts
-- Locks: none
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.withdraw_attempt
    @attempt_id uniqueidentifier
AS
BEGIN
    -- <settings>
    -- On the same connection as begin_attempt.
    SET LOCK_TIMEOUT 1000;
    DELETE FROM a
    FROM dialoq.receive_attempt AS a WITH (ROWLOCK, INDEX (receive_attempt_attempt), FORCESEEK)
    WHERE a.attempt_id = @attempt_id;
END
GO
