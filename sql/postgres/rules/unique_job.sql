-- Unique jobs: at most one job of a name in a queue, until the job is finished or the name's window is over.
-- Takes, Gives, Errors, Locks: see each function

-- The job that has a name. If none has it, the name is this transaction's to give to the end of the transaction.
-- Takes: the queue, the name, the time
-- Gives: whether a job has it; the job, NULL if it is finished and its window is not over
-- Errors: 60043 if another transaction is pushing a job of that name
CREATE OR REPLACE FUNCTION dialoq.job_of_name(
    q dialoq.work_queue, p_unique_key text, p_now timestamptz, OUT has_job boolean, OUT job_id bigint)
LANGUAGE plpgsql AS $$
DECLARE
    u record;
BEGIN
    IF NOT pg_try_advisory_xact_lock(
        (17515::bigint << 48) | (hashtextextended(q.queue_id || ' ' || p_unique_key, 0) & 281474976710655))
    THEN
        PERFORM dialoq.fail(60043, format('a job with the unique key ''%s'' is being pushed to work queue ''%s''', p_unique_key, q.name));
    END IF;
    SELECT n.job_id, n.until_at INTO u
    FROM dialoq.unique_job AS n WHERE n.queue_id = q.queue_id AND n.unique_key = p_unique_key;
    has_job := FOUND AND (u.until_at IS NULL OR u.until_at > p_now);
    IF has_job THEN
        SELECT j.job_id INTO job_id FROM dialoq.job AS j WHERE j.job_id = u.job_id;
        IF u.until_at IS NULL AND job_id IS NULL THEN
            -- Finished between the two reads, and the name went with it.
            has_job := EXISTS (
                SELECT FROM dialoq.unique_job AS n WHERE n.queue_id = q.queue_id AND n.unique_key = p_unique_key);
        END IF;
    END IF;
END $$;

-- Forgets names whose windows are over. A push that meets one first replaces it.
CREATE OR REPLACE FUNCTION dialoq.forget_unique_jobs(p_now timestamptz, p_top integer) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM dialoq.unique_job AS u
    WHERE u.ctid = ANY (ARRAY(
        SELECT o.ctid FROM dialoq.unique_job AS o
        WHERE o.until_at <= p_now ORDER BY o.until_at LIMIT p_top FOR UPDATE SKIP LOCKED))
$$;
