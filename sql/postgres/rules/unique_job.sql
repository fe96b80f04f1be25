-- Unique jobs: at most one job of a name in a queue, until the job is finished or the name's window is over.
-- Takes, Gives, Errors, Locks: see each function

-- The job that has a name, as far as this transaction can see.
-- Takes: the queue, the name, the time
-- Gives: whether a job has it; the job, NULL if it is finished and its window is not over
CREATE OR REPLACE FUNCTION dialoq.job_of_name(
    p_queue_id integer, p_unique_key text, p_now timestamptz, OUT has_job boolean, OUT job_id bigint)
LANGUAGE plpgsql AS $$
DECLARE
    u record;
BEGIN
    SELECT n.job_id, n.until_at INTO u
    FROM dialoq.unique_job AS n WHERE n.queue_id = p_queue_id AND n.unique_key = p_unique_key;
    has_job := FOUND AND (u.until_at IS NULL OR u.until_at > p_now);
    IF has_job THEN
        SELECT j.job_id INTO job_id FROM dialoq.job AS j WHERE j.job_id = u.job_id;
        IF u.until_at IS NULL AND job_id IS NULL THEN
            -- Finished between the two reads, and the name went with it.
            has_job := EXISTS (
                SELECT FROM dialoq.unique_job AS n WHERE n.queue_id = p_queue_id AND n.unique_key = p_unique_key);
        END IF;
    END IF;
END $$;

-- Gives a name to a job that is pushed, unless another job has it.
-- Takes: the queue, the name, the job that is to have it and until when (NULL: until it is finished), the time
-- Gives: whether another job has it; that job, as job_of_name
-- Errors: 60043 if another transaction is pushing a job of that name
-- Locks: the row of the name, waiting 100 ms at most, for a push of that name that is about to commit
CREATE OR REPLACE FUNCTION dialoq.take_name(
    q dialoq.work_queue, p_unique_key text, p_job_id bigint, p_until timestamptz, p_now timestamptz,
    OUT has_job boolean, OUT job_id bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_timeout text := current_setting('lock_timeout');
    v_is_ours boolean;
    v_named record;
BEGIN
    LOOP
        SELECT * INTO v_named FROM dialoq.job_of_name(q.queue_id, p_unique_key, p_now);
        has_job := v_named.has_job;
        job_id := v_named.job_id;
        EXIT WHEN has_job;
        BEGIN
            PERFORM set_config('lock_timeout', '100ms', true);
            INSERT INTO dialoq.unique_job AS u (queue_id, unique_key, job_id, until_at)
            VALUES (q.queue_id, p_unique_key, p_job_id, p_until)
            ON CONFLICT (queue_id, unique_key) DO UPDATE SET job_id = excluded.job_id, until_at = excluded.until_at
            WHERE u.until_at <= p_now;
            v_is_ours := FOUND;
            PERFORM set_config('lock_timeout', v_timeout, true);
            -- Another session has committed one meanwhile, and ON CONFLICT has locked its row. This transaction may stay open, and the
            -- end of that job would wait for it. The lock goes with the subtransaction.
            IF NOT v_is_ours THEN
                RAISE EXCEPTION USING ERRCODE = 'SBZZZ';
            END IF;
        EXCEPTION
            WHEN lock_not_available THEN
                PERFORM dialoq.fail(60043, format('a job with the unique key ''%s'' is being pushed to work queue ''%s''',
                    p_unique_key, q.name));
            WHEN SQLSTATE 'SBZZZ' THEN
                NULL;
        END;
        -- The job of the other session is read now.
        EXIT WHEN v_is_ours;
    END LOOP;
END $$;

-- Forgets names whose windows are over. A push that meets one first replaces it.
CREATE OR REPLACE FUNCTION dialoq.forget_unique_jobs(p_now timestamptz, p_top integer) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM dialoq.unique_job AS u
    WHERE u.ctid = ANY (ARRAY(
        SELECT o.ctid FROM dialoq.unique_job AS o
        WHERE o.until_at <= p_now ORDER BY o.until_at LIMIT p_top FOR UPDATE SKIP LOCKED))
$$;
