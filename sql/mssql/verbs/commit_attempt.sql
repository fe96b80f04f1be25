-- Ends an attempt with a commit. The client calls it in the transaction that received, just before COMMIT.
-- Takes: the attempt id
-- Gives: notices
-- Errors: none
-- Locks: none but what the transaction holds
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.commit_attempt
    @attempt_id uniqueidentifier
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @number int = 0, @queue_id int, @group uniqueidentifier;
    DECLARE @gone TABLE (row_number int IDENTITY(1, 1) PRIMARY KEY, queue_id int NOT NULL, group_id uniqueidentifier NOT NULL);
    -- <transaction>
    DELETE FROM a
    OUTPUT deleted.queue_id, deleted.conversation_group_id INTO @gone (queue_id, group_id)
    FROM dialoq.receive_attempt AS a WITH (ROWLOCK, INDEX (receive_attempt_attempt), FORCESEEK)
    WHERE a.attempt_id = @attempt_id;
    WHILE 1 = 1
    BEGIN
        SET @group = NULL;
        SELECT TOP (1) @number = g.row_number, @queue_id = g.queue_id, @group = g.group_id
        FROM @gone AS g WHERE g.row_number > @number ORDER BY g.row_number;
        IF @group IS NULL BREAK;
        EXEC dialoq.forget_rollbacks @queue_id;
        EXEC dialoq.forget_group_rollbacks @group;
        -- Of transactions that have rolled back before, whose counts have met this one (count_attempt): this success ends their row.
        EXEC dialoq.forget_attempts @group;
        -- Messages that came while the group was locked can be received from now on.
        IF EXISTS (
            SELECT 1 FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST) WHERE r.conversation_group_id = @group)
            SET @notices = CONCAT(@notices, N' q:', @queue_id);
    END
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
