-- Dead letters: messages that a retry policy has taken out of their queue.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: see each procedure
-- Locks: see each procedure

-- Moves a message of a conversation into the dead letters: the one that is named, or if it is NULL the one that RECEIVE would give first.
-- The caller holds the group's lock.
-- Locks: none
CREATE PROCEDURE dialoq.bury
    @endpoint_id bigint, @message bigint, @attempts int, @reason nvarchar(max), @now datetime2(6)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @delivery_class smallint, @order bigint, @group uniqueidentifier;
    SELECT @delivery_class = m.delivery_class, @order = m.queuing_order
    FROM dialoq.queue_message AS m WITH (READUNCOMMITTED)
    WHERE m.endpoint_id = @endpoint_id AND m.delivery_class IN (0, 1, 2) AND m.queuing_order = @message;
    IF @order IS NULL
    BEGIN
        SELECT TOP (1) @delivery_class = m.delivery_class, @order = m.queuing_order
        FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
        WHERE m.endpoint_id = @endpoint_id ORDER BY m.delivery_class DESC, m.queuing_order;
        -- As in take_first: an earlier message may have been passed over. Then that one is tried first.
        IF @order IS NULL OR EXISTS (
            SELECT 1 FROM dialoq.queue_message AS n WITH (READUNCOMMITTED)
            WHERE n.endpoint_id = @endpoint_id AND n.delivery_class = @delivery_class AND n.queuing_order < @order)
            RETURN;
    END
    SELECT @group = e.conversation_group_id FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    INSERT INTO dialoq.dead_letter (
        queuing_order, endpoint_id, delivery_class, queue_name, service_name, far_service_name, service_contract_name,
        conversation_handle, conversation_id, conversation_group_id, priority, attempts, died_at, reason
    )
    SELECT @order, e.endpoint_id, @delivery_class, COALESCE(q.name, N''), s.name, e.far_service, COALESCE(c.name, N''),
        e.conversation_handle, e.conversation_id, e.conversation_group_id, e.priority, @attempts, @now, dialoq.first_characters(@reason, 1000)
    FROM dialoq.conversation_endpoint AS e
    JOIN dialoq.service AS s ON s.service_id = e.service_id
    LEFT JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
    LEFT JOIN dialoq.service_contract AS c ON c.service_contract_id = e.service_contract_id
    WHERE e.endpoint_id = @endpoint_id;
    UPDATE dialoq.queue_message SET endpoint_id = -endpoint_id
    WHERE endpoint_id = @endpoint_id AND delivery_class = @delivery_class AND queuing_order = @order;
    EXEC dialoq.rebuild_ready_rows @group;
END
GO

-- Locks a dead letter to the end of the transaction and reads it.
-- Errors: 60048, 60049
-- Locks: the dead letter, without waiting
CREATE PROCEDURE dialoq.lock_dead_letter
    @dead_letter_id bigint, @endpoint_id bigint OUTPUT, @delivery_class smallint OUTPUT, @handle uniqueidentifier OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':dead_letter:', @dead_letter_id), @is_locked bit, @text nvarchar(2048);
    EXEC dialoq.try_lock @resource, N'Exclusive', @is_locked OUTPUT;
    IF @is_locked = 0
    BEGIN
        SET @text = CONCAT(N'dead letter ', @dead_letter_id,
            N' is redriven or purged by another transaction; try again when that has ended');
        THROW 60049, @text, 1;
    END
    EXEC dialoq.find_dead_letter @dead_letter_id, @endpoint_id OUTPUT, @delivery_class OUTPUT, @handle OUTPUT;
    IF @endpoint_id IS NOT NULL RETURN;
    SET @text = CONCAT(N'dead letter ', COALESCE(CAST(@dead_letter_id AS nvarchar(20)), N'NULL'),
        N' was not found; it was redriven or purged, or never was one');
    THROW 60048, @text, 1;
END
GO

-- Reads a dead letter. endpoint_id is NULL if there is none, or another transaction is removing it.
-- Errors: none
-- Locks: none
CREATE PROCEDURE dialoq.find_dead_letter
    @dead_letter_id bigint, @endpoint_id bigint OUTPUT, @delivery_class smallint OUTPUT, @handle uniqueidentifier OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET @endpoint_id = NULL;
    SELECT @endpoint_id = d.endpoint_id, @delivery_class = d.delivery_class, @handle = d.conversation_handle
    FROM dialoq.dead_letter AS d WITH (READCOMMITTEDLOCK, READPAST)
    WHERE d.queuing_order = @dead_letter_id;
END
GO

-- Refuses a dead letter whose conversation this side has ended, or is erased.
-- Errors: 60050
-- Locks: none
CREATE PROCEDURE dialoq.check_dead_letter_open
    @dead_letter_id bigint, @handle uniqueidentifier, @is_open bit
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048);
    IF @is_open = 1 RETURN;
    SET @text = CONCAT(N'dead letter ', @dead_letter_id, N' cannot be redriven: its conversation ', LOWER(CAST(@handle AS nvarchar(36))),
        N' has ended; read its body and send it on a new conversation, or purge it');
    THROW 60050, @text, 1;
END
GO
