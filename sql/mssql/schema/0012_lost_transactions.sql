-- The group that a lost transaction had received from; NULL for a transaction that its reader rolled back.
ALTER TABLE dialoq.queue_rollback ADD lost_group uniqueidentifier NULL;
GO
