-- Quarantine: a group that poison handling has set aside gives no messages until RELEASE QUARANTINE.
-- Takes: see each procedure; the caller has locked the group
-- Gives: see each procedure
-- Errors: none of its own
-- Locks: none

-- Puts a group into quarantine, or back into its queue. Its count of rollbacks is 0 afterwards, so a conversation that joins the
-- group later begins at 0. A quarantine without an end takes the place of a pause, which has one.
-- Gives: nothing
CREATE PROCEDURE dialoq.set_quarantined
    @group uniqueidentifier, @is_quarantined bit
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE e SET is_quarantined = @is_quarantined, rollbacks = 0, retry_at = NULL
    FROM dialoq.conversation_endpoint AS e WITH (ROWLOCK, INDEX (conversation_endpoint_group), FORCESEEK)
    WHERE e.conversation_group_id = @group;
    EXEC dialoq.rebuild_ready_rows @group;
END
GO

-- Puts a group into quarantine until a moment, but for conversations in a quarantine without an end: the group may have others, which joined
-- it later. Its count of rollbacks stays.
-- Gives: notices, added to @notices
CREATE PROCEDURE dialoq.pause_group
    @group uniqueidentifier, @retry_at datetime2(6), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE e SET is_quarantined = 1, retry_at = @retry_at,
        due_at = CASE WHEN e.due_at < @retry_at THEN e.due_at ELSE @retry_at END
    FROM dialoq.conversation_endpoint AS e WITH (ROWLOCK, INDEX (conversation_endpoint_group), FORCESEEK)
    WHERE e.conversation_group_id = @group AND (e.is_quarantined = 0 OR e.retry_at IS NOT NULL);
    EXEC dialoq.rebuild_ready_rows @group;
    SET @notices = CONCAT(@notices, dialoq.due_notice(@retry_at));
END
GO

-- Ends the pause of an endpoint, if it is over. The caller writes the time of the next event.
-- Gives: notices, added to @notices
CREATE PROCEDURE dialoq.end_pause
    @endpoint_id bigint, @now datetime2(6), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @group uniqueidentifier, @queue_id int;
    UPDATE dialoq.conversation_endpoint SET is_quarantined = 0, retry_at = NULL
    WHERE endpoint_id = @endpoint_id AND retry_at <= @now;
    IF @@ROWCOUNT = 0 RETURN;
    SELECT @group = e.conversation_group_id, @queue_id = s.queue_id
    FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
    WHERE e.endpoint_id = @endpoint_id;
    EXEC dialoq.rebuild_ready_rows @group;
    SET @notices = CONCAT(@notices, N' q:', @queue_id);
END
GO
