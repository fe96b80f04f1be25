-- Puts a dead letter back into its queue, at its old place in its conversation: it is received before the messages that came after
-- it and still wait. Not in Service Broker.
-- Takes: the dead letter
-- Gives: notices
-- Errors: 60048, 60049, 60050
-- Locks: the conversation's group, waiting; then the dead letter, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.redrive_dead_letter
    @dead_letter_id bigint
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @endpoint_id bigint, @delivery_class smallint, @handle uniqueidentifier, @is_open bit = 1;
    DECLARE @group uniqueidentifier, @queue_id int;
    -- <transaction>
    EXEC dialoq.find_dead_letter @dead_letter_id, @endpoint_id OUTPUT, @delivery_class OUTPUT, @handle OUTPUT;
    IF @endpoint_id IS NULL
        EXEC dialoq.lock_dead_letter @dead_letter_id, @endpoint_id OUTPUT, @delivery_class OUTPUT, @handle OUTPUT;
    -- Before the wait for the lock, and under the lock.
    IF EXISTS (
        SELECT 1 FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
        WHERE e.endpoint_id = @endpoint_id AND e.state IN (N'DO', N'CD'))
        SET @is_open = 0;
    IF @is_open = 1 EXEC dialoq.lock_endpoint @endpoint_id, 1, @is_open OUTPUT, @notices OUTPUT;
    IF @is_open = 1
        SELECT @is_open = CASE WHEN e.state IN (N'DO', N'CD') THEN 0 ELSE 1 END, @group = e.conversation_group_id, @queue_id = s.queue_id
        FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE e.endpoint_id = @endpoint_id;
    EXEC dialoq.check_dead_letter_open @dead_letter_id, @handle, @is_open;
    EXEC dialoq.lock_dead_letter @dead_letter_id, @endpoint_id OUTPUT, @delivery_class OUTPUT, @handle OUTPUT;
    UPDATE dialoq.queue_message SET endpoint_id = @endpoint_id
    WHERE endpoint_id = -@endpoint_id AND delivery_class = @delivery_class AND queuing_order = @dead_letter_id;
    DELETE FROM dialoq.dead_letter WHERE queuing_order = @dead_letter_id;
    -- It has all its attempts, also if the message that was first before it has failed meanwhile.
    UPDATE e SET rollbacks = 0
    FROM dialoq.conversation_endpoint AS e WITH (ROWLOCK, INDEX (conversation_endpoint_group), FORCESEEK)
    WHERE e.conversation_group_id = @group AND e.rollbacks <> 0;
    -- Those in the group that are still to be counted were before.
    EXEC dialoq.forget_attempts @group;
    EXEC dialoq.rebuild_ready_rows @group;
    SET @notices = CONCAT(@notices, N' q:', @queue_id);
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
