-- Posts QUEUE_ACTIVATION to the event notifications of a queue that has messages and no reader. For queue monitors.
-- Takes: the queue
-- Gives: notices
-- Errors: 60002
-- Locks: the groups of the notifications' conversations, waiting
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.post_queue_activation
    @queue nvarchar(4000)
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @queue_id int;
    -- <transaction>
    EXEC dialoq.find_queue @queue, @queue_id OUTPUT;
    EXEC dialoq.post_event @queue_id, N'QUEUE_ACTIVATION', @notices OUTPUT;
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
