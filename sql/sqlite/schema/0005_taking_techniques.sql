-- How takes lock and mark the jobs of a work queue on a server; kept here, so that a queue keeps it.
ALTER TABLE dialoq_work_queue ADD COLUMN take_by TEXT NOT NULL DEFAULT 'DEFAULT';
