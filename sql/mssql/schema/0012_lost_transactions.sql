-- The group that a lost transaction had received from; NULL for a transaction that its reader rolled back.
ALTER TABLE dialoq.queue_rollback ADD lost_group uniqueidentifier NULL;
-- The rollback in which it is counted, if that is another one.
ALTER TABLE dialoq.queue_rollback ADD counted_in bigint NULL;
GO
