-- RECEIVEs without WHERE of different callers, one after the other in one transaction. Never waits.
-- Takes: the queue; receive_batch_rows: for each how many at most (NULL: all of a group); the level and the oldest
--     queuing_order of the batch before, or NULL: older messages of that level are taken only if there are no others
-- Gives: for each item, from 0, its messages; an item that got no message has no row
-- Errors: 59617, 60002, 60005
-- Locks: the groups, without waiting
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.receive_batch
    @queue nvarchar(4000), @items dialoq.receive_batch_rows READONLY, @from_level int = NULL, @from_order bigint = NULL
AS
BEGIN
    -- <settings>
    DECLARE @queue_id int, @start_top int, @start bigint, @group uniqueidentifier, @is_held_back bit;
    IF @from_level NOT BETWEEN 1 AND 10 OR @from_order < 0 OR (@from_level IS NULL AND @from_order IS NOT NULL)
        THROW 60005, N'the place to begin at is out of range; it is a level of 1 to 10 and a queuing order from 0 on', 1;
    EXEC dialoq.find_receivable @queue, @queue_id OUTPUT, @is_held_back OUTPUT;
    -- No conversation has this group.
    IF @is_held_back = 1 SET @group = NEWID();
    -- Deleted rows stay in the index until the server cleans up, before all live rows.
    ELSE IF @from_order IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
        WHERE r.queue_id = @queue_id AND r.rank_from_top < 10 - @from_level)
    BEGIN
        SET @start_top = 10 - @from_level;
        SET @start = @from_order;
    END
    EXEC dialoq.receive_items @queue_id, @items, @group, NULL, 0, 9, 0, @start_top, @start, 1;
END
GO
