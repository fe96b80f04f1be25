-- Puts a conversation group that poison handling set aside back into its queue. Not in Service Broker.
-- Takes: the group
-- Gives: notices
-- Errors: 58436
-- Locks: the group, waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.release_quarantine
    @conversation_group_id uniqueidentifier
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @queue_id int, @is_locked bit;
    -- <transaction>
    EXEC dialoq.check_group @conversation_group_id, NULL;
    EXEC dialoq.lock_group @conversation_group_id, 1, @is_locked OUTPUT;
    -- The last conversation of the group may have ended before the lock was granted.
    EXEC dialoq.check_group @conversation_group_id, NULL;
    SELECT TOP (1) @queue_id = s.queue_id
    FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
    JOIN dialoq.service AS s ON s.service_id = e.service_id
    WHERE e.conversation_group_id = @conversation_group_id;
    EXEC dialoq.set_quarantined @conversation_group_id, 0;
    EXEC dialoq.forget_attempts @conversation_group_id;
    SET @notices = CONCAT(N'q:', @queue_id);
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
