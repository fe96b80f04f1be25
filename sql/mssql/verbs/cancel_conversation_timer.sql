-- Takes back a conversation's timer, if it has one; a DialogTimer message that has arrived stays. Not in Service Broker.
-- Takes: the handle
-- Gives: notices
-- Errors: 58426, 58458
-- Locks: the conversation's group, waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.cancel_conversation_timer
    @conversation_handle uniqueidentifier
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @endpoint_id bigint, @now datetime2(6);
    -- <transaction>
    SET @now = dialoq.current_time_utc();
    EXEC dialoq.lock_unended @conversation_handle, 58458, N'CANCEL CONVERSATION TIMER', @endpoint_id OUTPUT, @notices OUTPUT;
    UPDATE dialoq.conversation_endpoint SET dialog_timer = NULL WHERE endpoint_id = @endpoint_id;
    EXEC dialoq.reschedule @endpoint_id, @now, @notices OUTPUT;
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
