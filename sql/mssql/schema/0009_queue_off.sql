-- Since when a queue is off, what turned it off ('statement' or 'poison'), and the reason that a statement gave.
ALTER TABLE dialoq.service_queue ADD off_since datetime2(6) NULL;
GO
ALTER TABLE dialoq.service_queue ADD off_by nvarchar(20) NULL;
GO
ALTER TABLE dialoq.service_queue ADD off_reason nvarchar(2000) NULL;
GO
