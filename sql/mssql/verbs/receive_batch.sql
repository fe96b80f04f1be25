-- RECEIVEs without WHERE of different callers, one after the other in one transaction. Never waits.
-- Takes: the queue; receive_batch_rows: for each how many at most (NULL: all of a group)
-- Gives: the messages, with the item that they are for; items that got nothing have no row
-- Errors: 59617, 60002
-- Locks: the groups, without waiting
IF OBJECT_ID(N'dialoq.receive_batch') IS NOT NULL DROP PROCEDURE dialoq.receive_batch
GO
CREATE PROCEDURE dialoq.receive_batch
    @queue nvarchar(4000), @items dialoq.receive_batch_rows READONLY
AS
BEGIN
    SET NOCOUNT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @queue_id int;
    EXEC dialoq.find_receivable @queue, @queue_id OUTPUT;
    EXEC dialoq.receive_items @queue_id, @items, NULL, NULL, 0, 9, 0, 1;
END
GO
