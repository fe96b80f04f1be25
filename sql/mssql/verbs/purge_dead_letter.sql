-- Removes a dead letter for good. Not in Service Broker.
-- Takes: the dead letter
-- Gives: notices
-- Errors: 60048, 60049
-- Locks: the dead letter, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.purge_dead_letter
    @dead_letter_id bigint
AS
BEGIN
    -- <settings>
    DECLARE @endpoint_id bigint, @delivery_class smallint, @handle uniqueidentifier;
    -- <transaction>
    EXEC dialoq.lock_dead_letter @dead_letter_id, @endpoint_id OUTPUT, @delivery_class OUTPUT, @handle OUTPUT;
    DELETE FROM dialoq.queue_message
    WHERE endpoint_id = -@endpoint_id AND delivery_class = @delivery_class AND queuing_order = @dead_letter_id;
    DELETE FROM dialoq.dead_letter WHERE queuing_order = @dead_letter_id;
    -- </transaction>
    SELECT CAST(NULL AS nvarchar(max)) AS notices;
END
GO
