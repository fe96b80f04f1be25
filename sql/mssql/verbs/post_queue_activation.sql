-- Tells the QUEUE_ACTIVATION notifications of a queue that there is work and nobody receives. For queue monitors.
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
    DECLARE @notices nvarchar(max), @text nvarchar(2048), @queue_id int;
    -- <transaction>
    SELECT @queue_id = q.queue_id
    FROM dialoq.service_queue AS q
    WHERE q.folded_name = dialoq.fold_name(@queue) AND DATALENGTH(q.folded_name) = DATALENGTH(@queue);
    IF @queue_id IS NULL
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'queue ''', @queue, N''' was not found'));
        THROW 60002, @text, 1;
    END
    EXEC dialoq.post_event @queue_id, N'QUEUE_ACTIVATION', @notices OUTPUT;
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
