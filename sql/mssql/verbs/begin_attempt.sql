-- Records that an open transaction has received from a group. The client calls it on another connection, so the record stays
-- even if the host of the transaction dies.
-- Takes: the transaction's attempt id, the queue, the group; the first message that the transaction received from it, by its conversation and
--     queuing_order (NULL: not known). They are not kept if that conversation is in another queue, or in another group that no session
--     holds
-- Gives: nothing. No record is made if no transaction holds the group, or if the group has no conversation in that queue
-- Errors: 60005; 1222 if another session keeps a row from being read or written for a second
-- Locks: none
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.begin_attempt
    @attempt_id uniqueidentifier, @queue_id int, @conversation_group_id uniqueidentifier,
    @conversation_handle uniqueidentifier = NULL, @queuing_order bigint = NULL
AS
BEGIN
    -- <settings>
    DECLARE @endpoint_id bigint, @group uniqueidentifier;
    -- The transaction waits for this call, on a connection that all transactions of the process share. Without the limit the call
    -- could wait for a lock of one of them.
    SET LOCK_TIMEOUT 1000;
    IF @attempt_id IS NULL OR @queue_id IS NULL OR @conversation_group_id IS NULL
        THROW 60005, N'an attempt needs its id, a queue and a conversation group; one of them is NULL', 1;
    -- Invented attempts would disable a queue. A group that no session holds has no received messages that a rollback could
    -- return.
    IF APPLOCK_TEST(N'dialoq_user', CONCAT(N'dialoq:group:', @conversation_group_id), N'Exclusive', N'Session') = 1
        OR NOT EXISTS (
            SELECT 1
            FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
            JOIN dialoq.service AS s ON s.service_id = e.service_id
            WHERE e.conversation_group_id = @conversation_group_id AND s.queue_id = @queue_id)
        RETURN;
    -- The transaction may have moved the conversation to this group. Then it holds the group of before, too, which SQL Server's relative shows.
    SELECT @endpoint_id = e.endpoint_id, @group = e.conversation_group_id
    FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED, INDEX (conversation_endpoint_handle), FORCESEEK)
    JOIN dialoq.service AS s ON s.service_id = e.service_id
    WHERE e.conversation_handle = @conversation_handle AND s.queue_id = @queue_id AND @queuing_order IS NOT NULL;
    IF @group <> @conversation_group_id AND APPLOCK_TEST(N'dialoq_user', CONCAT(N'dialoq:group:', @group), N'Exclusive', N'Session') = 1
        SET @endpoint_id = NULL;
    IF NOT EXISTS (
        SELECT 1 FROM dialoq.receive_attempt AS a WITH (INDEX (receive_attempt_attempt), FORCESEEK)
        WHERE a.attempt_id = @attempt_id AND a.conversation_group_id = @conversation_group_id)
        -- Not current_time_utc, which reads the row of settings: without READ_COMMITTED_SNAPSHOT this would wait for ever for
        -- the transaction itself if that has ended the target's side of an event notification.
        INSERT INTO dialoq.receive_attempt (attempt_id, conversation_group_id, queue_id, began_at, endpoint_id, first_order)
        VALUES (
            @attempt_id, @conversation_group_id, @queue_id, SYSUTCDATETIME(), @endpoint_id,
            CASE WHEN @endpoint_id IS NOT NULL THEN @queuing_order END);
END
GO
