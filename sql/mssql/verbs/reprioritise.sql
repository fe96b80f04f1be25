-- Changes the level of one endpoint. Not in Service Broker, which freezes it at the beginning.
-- Takes: the handle, the level 1 (low) to 10 (high)
-- Gives: notices
-- Errors: 58426, 58438, 60005
-- Locks: the conversation's group, waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.reprioritise
    @conversation_handle uniqueidentifier, @level int
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @text nvarchar(2048), @endpoint_id bigint, @state nvarchar(2), @service_id int;
    DECLARE @group uniqueidentifier, @lifetime datetime2(6), @conversation_id uniqueidentifier, @is_initiator bit;
    DECLARE @is_ready bit;
    -- <transaction>
    IF @level IS NULL OR @level NOT BETWEEN 1 AND 10
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'the level is ', @level, N'; it must be 1 (low) to 10 (high)'));
        THROW 60005, @text, 1;
    END
    EXEC dialoq.lock_unended @conversation_handle, 58438, N'REPRIORITISE', @endpoint_id OUTPUT, @notices OUTPUT;
    SELECT @state = e.state, @group = e.conversation_group_id, @service_id = e.service_id, @lifetime = e.lifetime,
        @conversation_id = e.conversation_id, @is_initiator = e.is_initiator
    FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    UPDATE dialoq.conversation_endpoint SET priority = @level WHERE endpoint_id = @endpoint_id;
    EXEC dialoq.rebuild_ready_rows @group, @is_ready OUTPUT;
    IF @is_ready = 1
        SET @notices = CONCAT(@notices, N' q:', (SELECT s.queue_id FROM dialoq.service AS s WHERE s.service_id = @service_id));
    -- A concurrent sender still announces its message at the old level.
    EXEC dialoq.request_recheck @endpoint_id, @conversation_id, @is_initiator;
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
