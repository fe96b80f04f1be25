-- Work schedules: the jobs that work queues get at certain times.

-- next_at: when it fires next, NULL if it is paused. last_at: the time that it last pushed a job for.
CREATE TABLE dialoq_work_schedule (
    schedule_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    queue_id INTEGER NOT NULL,
    is_enabled INTEGER NOT NULL,
    cron TEXT NOT NULL,
    time_zone TEXT NOT NULL,
    missed TEXT NOT NULL,
    job_type TEXT NOT NULL,
    job_key TEXT,
    level INTEGER NOT NULL,
    body TEXT NOT NULL,
    next_at INTEGER,
    last_at INTEGER
) STRICT;
