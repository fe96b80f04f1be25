-- GET_TRANSMISSION_STATUS: why the first message of a conversation that waits still waits.
-- Takes: the handle
-- Gives: transmission_status, '' if nothing waits or the handle is unknown
-- Errors: none
-- Locks: none
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.get_transmission_status
    @conversation_handle uniqueidentifier
AS
BEGIN
    -- <settings>
    DECLARE @status nvarchar(256);
    SELECT TOP (1) @status = t.status
    FROM dialoq.conversation_endpoint AS e JOIN dialoq.effective_transmission AS t ON t.endpoint_id = e.endpoint_id
    WHERE e.conversation_handle = @conversation_handle AND e.is_system = 0
    ORDER BY t.transmission_id;
    SELECT COALESCE(@status, N'') AS transmission_status;
END
GO
