-- The checks of the arguments of the verbs of work queues, in the order of every store.
-- Takes, Gives, Errors, Locks: see each function

-- Refuses a text that is longer than the tables keep.
-- Errors: 60005
CREATE OR REPLACE FUNCTION dialoq.check_length(p_what text, p_text text, p_most integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF octet_length(p_text) > p_most AND length(p_text) > p_most THEN
        PERFORM dialoq.fail(60005, format('%s is a text of %s characters; it must be at most %s characters', p_what,
            length(p_text), p_most));
    END IF;
END $$;

-- Refuses a time span below the least or above ten years. NULL is none.
-- Errors: 60005
CREATE OR REPLACE FUNCTION dialoq.check_delay(p_what text, p_ms bigint, p_least integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_ms NOT BETWEEN p_least AND 315360000000 THEN
        PERFORM dialoq.fail(60005, format('%s is %s; it must be %s to 315360000000 (ten years)', p_what, p_ms, p_least));
    END IF;
END $$;

-- Refuses a body or a result that no session could read, as check_message_bytes.
-- Errors: 8459
CREATE OR REPLACE FUNCTION dialoq.check_bytes(p_what text, p_bytes bytea) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_most integer := CASE WHEN dialoq.is_client_call() THEN 999000000 ELSE 500000000 END;
BEGIN
    IF octet_length(p_bytes) > v_most THEN
        PERFORM dialoq.fail(8459, format('%s has %s bytes; the limit is %s', p_what, octet_length(p_bytes), v_most));
    END IF;
END $$;

-- Refuses a TAKE.
-- Errors: 60005
CREATE OR REPLACE FUNCTION dialoq.check_take(
    q dialoq.work_queue, p_job_count bigint, p_job_type text, p_lowest integer, p_highest integer, p_oldest boolean,
    p_has_lease boolean, p_lease_ms bigint, p_taken_by text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM dialoq.check_range('the number of jobs to take', p_job_count, 1, 10000);
    PERFORM dialoq.check_length('the name of a reader', p_taken_by, 128);
    PERFORM dialoq.check_length('the type of a job', p_job_type, 128);
    IF p_has_lease THEN
        PERFORM dialoq.check_delay('a lease in milliseconds', p_lease_ms, 1);
    ELSIF p_lease_ms IS NOT NULL THEN
        -- The commit of such a take completes its jobs: a caller that wanted leases lost them if it died.
        PERFORM dialoq.fail(60005, format('p_lease_ms is %s and p_has_lease is not true, so the take would complete the jobs; '
            'give p_has_lease => true, or no p_lease_ms', p_lease_ms));
    END IF;
    IF coalesce(p_lowest, 1) < 1 OR coalesce(p_highest, 10) NOT BETWEEN coalesce(p_lowest, 1) AND 10 THEN
        PERFORM dialoq.fail(60005, format('the levels to take from are %s to %s; they must be 1 to 10, the lowest first',
            coalesce(p_lowest, 1), coalesce(p_highest, 10)));
    END IF;
    IF q.work_order <> 'PRIORITY' AND (p_lowest IS NOT NULL OR p_highest IS NOT NULL OR p_oldest IS TRUE) THEN
        PERFORM dialoq.fail(60005, format('work queue ''%s'' has ORDER = %s: only a queue of ORDER = PRIORITY can be asked for '
            'levels or for the oldest', q.name, q.work_order));
    END IF;
END $$;
