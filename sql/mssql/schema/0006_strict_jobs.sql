-- The jobs of queues with ORDER = FIFO_STRICT, in the order of their keys: the first one that is not finished holds back the later
-- ones. Jobs of other queues have no place in the index, so they cost nothing.
ALTER TABLE dialoq.job ADD strict_order bigint NULL;
GO
UPDATE j SET strict_order = j.take_order
FROM dialoq.job AS j
JOIN dialoq.work_queue AS w ON w.queue_id = j.queue_id
WHERE w.work_order = N'FIFO_STRICT';
GO
CREATE INDEX job_strict ON dialoq.job (queue_id, job_key, state, strict_order) WHERE strict_order IS NOT NULL;
GO
-- As in 0002_checks.
IF @@VERSION NOT LIKE N'%Babelfish%'
    EXEC(N'ALTER INDEX ALL ON dialoq.job SET (ALLOW_PAGE_LOCKS = OFF);')
GO
