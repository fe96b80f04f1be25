-- RETENTION = ON: copies of the messages that a conversation has received (status 0) and sent (status 3), kept until its END.
-- Takes: see each procedure; the caller holds the lock of the endpoint's group
-- Gives: nothing
-- Errors: none of its own
-- Locks: none

-- Keeps a copy of a message that a RECEIVE is about to delete. A RECEIVE of several messages copies all of them in one
-- statement of its own (rules/receive.sql).
CREATE PROCEDURE dialoq.retain_received
    @endpoint_id bigint, @delivery_class smallint, @queuing_order bigint
AS
BEGIN
    SET NOCOUNT ON;
    INSERT INTO dialoq.retained_message (
        endpoint_id, queuing_order, status, delivery_class, sequence, message_type_id, message_id, enqueued_at, body, trace
    )
    SELECT m.endpoint_id, m.queuing_order, 0, m.delivery_class, m.sequence, m.message_type_id, m.message_id, m.enqueued_at,
        m.body, m.trace
    FROM dialoq.queue_message AS m
    WHERE m.endpoint_id = @endpoint_id AND m.delivery_class = @delivery_class AND m.queuing_order = @queuing_order;
END
GO

-- Keeps a copy of a message that an endpoint sends, at a place of its own in the order of its queue.
CREATE PROCEDURE dialoq.retain_sent
    @endpoint_id bigint, @sequence bigint, @message_type_id int, @message_id uniqueidentifier, @now datetime2(6),
    @body varbinary(max), @trace nvarchar(max)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @order bigint;
    INSERT INTO dialoq.queue_message (endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at)
    VALUES (@endpoint_id, 3, @sequence, @message_type_id, @message_id, @now);
    SET @order = SCOPE_IDENTITY();
    DELETE FROM dialoq.queue_message WHERE endpoint_id = @endpoint_id AND delivery_class = 3 AND queuing_order = @order;
    INSERT INTO dialoq.retained_message (
        endpoint_id, queuing_order, status, delivery_class, sequence, message_type_id, message_id, enqueued_at, body, trace
    ) VALUES (
        @endpoint_id, @order, 3, 0, @sequence, @message_type_id, @message_id, @now, @body, @trace
    );
END
GO
