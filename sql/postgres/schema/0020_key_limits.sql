-- Limits by key: takes find the first ready job of each key without a walk over the jobs of keys that are held back.

-- Whether its queue limited its keys when it was pushed, or was made to since: only such jobs are in the index, which costs each
-- push 10 of 57 us.
ALTER TABLE dialoq.job ADD COLUMN has_key_limit boolean NOT NULL DEFAULT false;
CREATE INDEX job_of_key ON dialoq.job (queue_id, job_key, rank_from_top, take_order) WHERE state = 1 AND has_key_limit;

-- Whether all jobs of the queue are marked.
ALTER TABLE dialoq.work_queue ADD COLUMN are_jobs_marked boolean NOT NULL DEFAULT false;

-- Queues that limit their keys and have jobs which may not be marked. tick marks them from the lowest number, once every transaction
-- that may push an unmarked one has ended.
CREATE TABLE dialoq.unmarked_work_queue (
    queue_id integer PRIMARY KEY,
    -- As in dropped_work_queue.
    after_xid xid8,
    last_job_id bigint NOT NULL DEFAULT 0,
    -- Whether a job was locked when its turn came, so that they are gone through once more.
    has_passed_over boolean NOT NULL DEFAULT false
);
INSERT INTO dialoq.unmarked_work_queue (queue_id)
SELECT q.queue_id FROM dialoq.work_queue AS q
WHERE q.work_order <> 'FIFO_STRICT' AND q.max_taken_per_key + q.key_rate_jobs > 0;
