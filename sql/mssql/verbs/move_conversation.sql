-- MOVE CONVERSATION: puts a conversation into another group of the same service.
-- Takes: the handle, the group, which must have conversations
-- Gives: notices
-- Errors: 58426, 58436, 58438, 58439
-- Locks: both groups in the order of their ids, waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.move_conversation
    @conversation_handle uniqueidentifier, @conversation_group_id uniqueidentifier
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @endpoint_id bigint, @service_id int, @is_locked bit, @rollbacks int;
    DECLARE @group uniqueidentifier, @conversation_id uniqueidentifier, @is_initiator bit;
    -- <transaction>
    -- A refusal that no lock holder can change does not wait for the groups. The groups are locked in the order of their ids.
    EXEC dialoq.check_not_ended @conversation_handle, 58438, N'MOVE CONVERSATION';
    SELECT @group = e.conversation_group_id, @service_id = e.service_id
    FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
    WHERE e.conversation_handle = @conversation_handle AND e.is_system = 0 AND e.state NOT IN (N'DO', N'CD');
    IF @group IS NOT NULL
    BEGIN
        EXEC dialoq.check_group @conversation_group_id, @service_id;
        IF @conversation_group_id < @group EXEC dialoq.lock_group @conversation_group_id, 1, @is_locked OUTPUT;
    END
    EXEC dialoq.lock_unended @conversation_handle, 58438, N'MOVE CONVERSATION', @endpoint_id OUTPUT, @notices OUTPUT;
    EXEC dialoq.lock_group @conversation_group_id, 1, @is_locked OUTPUT;
    SELECT @group = e.conversation_group_id, @service_id = e.service_id, @conversation_id = e.conversation_id,
        @is_initiator = e.is_initiator
    FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    EXEC dialoq.check_group @conversation_group_id, @service_id;
    IF @group <> @conversation_group_id
    BEGIN
        -- The count of rollbacks is that of the group.
        SELECT @rollbacks = MAX(o.rollbacks)
        FROM dialoq.conversation_endpoint AS o WITH (INDEX (conversation_endpoint_group), FORCESEEK)
        WHERE o.conversation_group_id = @conversation_group_id;
        UPDATE dialoq.conversation_endpoint SET conversation_group_id = @conversation_group_id, rollbacks = @rollbacks
        WHERE endpoint_id = @endpoint_id;
        EXEC dialoq.rebuild_ready_rows @group;
        EXEC dialoq.rebuild_ready_rows @conversation_group_id;
        -- Also if no message is ready: a RECEIVE that waits for the old group has to find that it is gone.
        SET @notices = CONCAT(@notices, N' q:', (SELECT s.queue_id FROM dialoq.service AS s WHERE s.service_id = @service_id));
        -- A concurrent sender still announces its message in the old group.
        EXEC dialoq.request_recheck @endpoint_id, @conversation_id, @is_initiator;
    END
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
