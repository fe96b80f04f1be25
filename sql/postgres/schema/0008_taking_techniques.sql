-- How takes lock and mark the jobs of a work queue.
ALTER TABLE dialoq.work_queue ADD COLUMN take_by text NOT NULL DEFAULT 'DEFAULT'
    CHECK (take_by IN ('DEFAULT', 'STATEMENT', 'CTE', 'CURSOR', 'APPLOCK'));
