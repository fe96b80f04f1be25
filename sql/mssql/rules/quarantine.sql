-- Quarantine: a group that poison handling has set aside gives no messages until RELEASE QUARANTINE.
-- Takes: the group, whose lock the caller holds; whether it goes into quarantine or comes out
-- Gives: nothing
-- Errors: none of its own
-- Locks: none

-- Puts a group into quarantine, or back into its queue. Its count of rollbacks is 0 afterwards, so a conversation that joins the
-- group later begins at 0.
CREATE PROCEDURE dialoq.set_quarantined
    @group uniqueidentifier, @is_quarantined bit
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE e SET is_quarantined = @is_quarantined, rollbacks = 0
    FROM dialoq.conversation_endpoint AS e WITH (ROWLOCK, INDEX (conversation_endpoint_group), FORCESEEK)
    WHERE e.conversation_group_id = @group;
    EXEC dialoq.rebuild_ready_rows @group;
END
GO
