-- Puts a conversation group that poison handling set aside back into its queue. Ours.
-- Takes: the group
-- Gives: notices
-- Errors: 58436
-- Locks: the group, waiting
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.release_quarantine
    @conversation_group_id uniqueidentifier
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @text nvarchar(2048), @queue_id int, @is_locked bit;
    -- <transaction>
    EXEC dialoq.check_group @conversation_group_id, NULL;
    EXEC dialoq.lock_group @conversation_group_id, 1, @is_locked OUTPUT;
    SELECT TOP (1) @queue_id = s.queue_id
    FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
    JOIN dialoq.service AS s ON s.service_id = e.service_id
    WHERE e.conversation_group_id = @conversation_group_id;
    IF @queue_id IS NULL
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'conversation group ', dialoq.id_text(@conversation_group_id),
            N' was not found: it has no conversations here'));
        THROW 58436, @text, 1;
    END
    UPDATE e SET is_quarantined = 0, rollbacks = 0
    FROM dialoq.conversation_endpoint AS e WITH (ROWLOCK, INDEX (conversation_endpoint_group), FORCESEEK)
    WHERE e.conversation_group_id = @conversation_group_id;
    EXEC dialoq.rebuild_ready_rows @conversation_group_id;
    SET @notices = CONCAT(N'q:', @queue_id);
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
