-- How takes lock and mark the jobs of a work queue.
ALTER TABLE dialoq.work_queue ADD take_by nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL DEFAULT N'DEFAULT'
    CHECK (take_by IN (N'DEFAULT', N'STATEMENT', N'CTE', N'CURSOR', N'APPLOCK'));
GO
