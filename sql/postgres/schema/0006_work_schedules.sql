-- Work schedules: the jobs that work queues get at certain times.

-- next_at: when it fires next, NULL if it is paused. last_at: the time that it last pushed a job for. version grows with each
-- ALTER, so that a process that has read the row before fires nothing.
CREATE TABLE dialoq.work_schedule (
    schedule_id integer PRIMARY KEY,
    name text NOT NULL,
    -- As in service_queue.
    folded_name text COLLATE "C" NOT NULL UNIQUE,
    queue_id integer NOT NULL,
    is_enabled boolean NOT NULL,
    cron text NOT NULL,
    time_zone text NOT NULL,
    missed text NOT NULL CHECK (missed IN ('ONCE', 'SKIP', 'ALL')),
    job_type text COLLATE "C" NOT NULL,
    job_key text COLLATE "C",
    level smallint NOT NULL CHECK (level BETWEEN 1 AND 10),
    body text NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    next_at timestamptz CHECK (next_at BETWEEN '1970-01-01Z' AND '9999-12-31Z'),
    last_at timestamptz
);
CREATE INDEX work_schedule_next ON dialoq.work_schedule (next_at) WHERE next_at IS NOT NULL;
