-- Names that say what the columns hold.
EXEC sp_rename N'dialoq.queue_message.stored', N'delivery_class', N'COLUMN';
GO
EXEC sp_rename N'dialoq.retained_message.stored', N'delivery_class', N'COLUMN';
GO
-- 10 minus the level, so that the index ascends from the highest level.
EXEC sp_rename N'dialoq.ready_group.below_top', N'rank_from_top', N'COLUMN';
GO
-- Endpoints that tick examines again when the transactions of that moment are over.
EXEC sp_rename N'dialoq.unsettled.unsettled_id', N'recheck_id', N'COLUMN';
GO
EXEC sp_rename N'dialoq.unsettled.look_at', N'recheck_at', N'COLUMN';
GO
EXEC sp_rename N'dialoq.unsettled', N'recheck_queue', N'OBJECT';
GO
