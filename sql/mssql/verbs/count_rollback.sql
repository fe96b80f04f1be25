-- Ends an attempt without a commit: counts the rollback of a transaction that received. Does nothing if another session has
-- counted it already.
-- Takes: the attempt id
-- Gives: notices
-- Errors: none
-- Locks: its groups if the queue has quarantine, without waiting; the definitions if a queue is disabled by this
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.count_rollback
    @attempt_id uniqueidentifier
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max);
    -- <transaction>
    EXEC dialoq.count_attempt @attempt_id, @notices OUTPUT;
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
