-- GET CONVERSATION GROUP: locks the group that RECEIVE would take from. Never waits. Outside a transaction the lock is
-- free again when this is over.
-- Takes: the queue
-- Gives: conversation_group_id (NULL: none), notices
-- Errors: 59617, 60002
-- Locks: the group, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.get_conversation_group
    @queue nvarchar(4000)
AS
BEGIN
    -- <settings>
    DECLARE @queue_id int, @group uniqueidentifier, @past_top int = 0, @past bigint = -1, @seen nvarchar(max) = N'';
    DECLARE @is_held_back bit, @is_new bit;
    EXEC dialoq.find_receivable @queue, @queue_id OUTPUT, @is_held_back OUTPUT;
    -- <transaction>
    WHILE @is_held_back = 0
    BEGIN
        EXEC dialoq.choose @queue_id, 0, 9, 0, @past_top OUTPUT, @past OUTPUT, @seen OUTPUT, @group OUTPUT,
            @is_new OUTPUT;
        -- Another may have emptied it before the lock was ours.
        IF @group IS NULL
            OR EXISTS (
                SELECT 1 FROM dialoq.group_rank AS k WHERE k.conversation_group_id = @group AND k.queue_id = @queue_id)
            BREAK;
        IF @is_new = 1 EXEC dialoq.unlock_group @group;
    END
    -- </transaction>
    SELECT @group AS conversation_group_id, CAST(NULL AS nvarchar(max)) AS notices;
END
GO
