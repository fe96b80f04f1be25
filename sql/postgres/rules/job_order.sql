-- The order in which the jobs of a work queue are taken.
-- Takes, Gives, Errors, Locks: see each function

-- 10 minus the level in a queue that looks at levels, else 0.
CREATE OR REPLACE FUNCTION dialoq.job_rank(p_work_order text, p_level integer) RETURNS smallint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE p_work_order WHEN 'PRIORITY' THEN 10 - p_level ELSE 0 END::smallint
$$;

-- The job's place within its rank.
CREATE OR REPLACE FUNCTION dialoq.job_place(p_work_order text, p_job_id bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE p_work_order WHEN 'LIFO' THEN -p_job_id ELSE p_job_id END
$$;

-- When a job that is pushed now is due: after a delay, or at a time in microseconds since 1970; NULL is now.
CREATE OR REPLACE FUNCTION dialoq.job_due(p_now timestamptz, p_delay_ms bigint, p_due_us bigint) RETURNS timestamptz
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_due timestamptz;
BEGIN
    IF p_delay_ms IS NOT NULL THEN
        v_due := p_now + p_delay_ms * interval '1 millisecond';
    ELSIF p_due_us IS NOT NULL THEN
        -- The last time that every language can name.
        v_due := timestamptz '1970-01-01 00:00:00+00'
            + least(greatest(p_due_us, 0), 253402300799999999) / 1000000 * interval '1 second'
            + least(greatest(p_due_us, 0), 253402300799999999) % 1000000 * interval '1 microsecond';
    END IF;
    RETURN CASE WHEN v_due > p_now THEN v_due END;
END $$;

-- The next job of a queue, locked. Jobs that another session has locked are passed over.
-- Takes: the queue; the type (NULL: any); the ranks; whether only age counts; keys whose jobs are held back, and whether jobs
--     without a key are
-- Gives: the job; NULL if there is none
CREATE OR REPLACE FUNCTION dialoq.next_job(
    p_queue_id integer, p_job_type text, p_from integer, p_to integer, p_oldest boolean, p_blocked text[], p_is_keyless_blocked boolean)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_id bigint;
    v_passed bigint[] := '{}';
    v_state smallint;
BEGIN
    IF NOT p_oldest AND p_job_type IS NULL THEN
        SELECT j.job_id INTO v_id
        FROM dialoq.job AS j
        WHERE j.queue_id = p_queue_id AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to
            AND CASE WHEN j.job_key IS NULL THEN NOT p_is_keyless_blocked ELSE j.job_key <> ALL (p_blocked) END
        ORDER BY j.rank_from_top, j.take_order LIMIT 1 FOR UPDATE SKIP LOCKED;
        RETURN v_id;
    ELSIF NOT p_oldest THEN
        SELECT j.job_id INTO v_id
        FROM dialoq.job AS j
        WHERE j.queue_id = p_queue_id AND j.job_type = p_job_type AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to
            AND CASE WHEN j.job_key IS NULL THEN NOT p_is_keyless_blocked ELSE j.job_key <> ALL (p_blocked) END
        ORDER BY j.rank_from_top, j.take_order LIMIT 1 FOR UPDATE SKIP LOCKED;
        RETURN v_id;
    END IF;
    -- The oldest of the first jobs of each rank.
    LOOP
        SELECT f.job_id INTO v_id
        FROM generate_series(p_from, p_to) AS r (rank)
        CROSS JOIN LATERAL (
            SELECT j.job_id, j.take_order FROM dialoq.job AS j
            WHERE j.queue_id = p_queue_id AND j.state = 1 AND j.rank_from_top = r.rank AND j.job_id <> ALL (v_passed)
                AND (p_job_type IS NULL OR j.job_type = p_job_type)
                AND CASE WHEN j.job_key IS NULL THEN NOT p_is_keyless_blocked ELSE j.job_key <> ALL (p_blocked) END
            ORDER BY j.rank_from_top, j.take_order LIMIT 1) AS f
        ORDER BY f.take_order LIMIT 1;
        IF v_id IS NULL THEN
            RETURN NULL;
        END IF;
        SELECT j.state INTO v_state FROM dialoq.job AS j WHERE j.job_id = v_id FOR UPDATE SKIP LOCKED;
        IF v_state = 1 THEN
            RETURN v_id;
        END IF;
        v_passed := v_passed || v_id;
    END LOOP;
END $$;
