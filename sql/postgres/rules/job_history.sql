-- The end of jobs, and the history of a queue, which keeps to its bounds.
-- Takes, Gives, Errors, Locks: see each function

-- Jobs leave their queues. The caller has locked the rows.
-- Takes: where their rows are; 4 done or 5 cancelled; their results, by place (NULL: none)
-- Gives: the places of those that were there; notices
CREATE OR REPLACE FUNCTION dialoq.finish_jobs(
    p_rows tid[], p_finished_as integer, p_results bytea[], p_now timestamptz, OUT places bigint[], OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    v_job record;
    v_settings record;
BEGIN
    -- Of one job three small statements cost the server half of the one below.
    IF cardinality(p_rows) = 1 THEN
        places := '{}';
        DELETE FROM dialoq.job AS j
        WHERE j.ctid = p_rows[1]
        RETURNING j.job_id, j.queue_id, j.level, j.attempts, j.pushed_at, j.taken_at, j.job_type, j.job_key, j.unique_key, j.pushed_by,
            j.taken_by, j.last_error
        INTO v_job;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        places := ARRAY[1];
        SELECT w.has_history, dialoq.is_limited(w) AS is_limited INTO v_settings
        FROM dialoq.work_queue AS w WHERE w.queue_id = v_job.queue_id;
        IF v_job.unique_key IS NOT NULL THEN
            DELETE FROM dialoq.unique_job AS u
            WHERE u.queue_id = v_job.queue_id AND u.unique_key = v_job.unique_key AND u.job_id = v_job.job_id AND u.until_at IS NULL;
        END IF;
        IF v_settings.has_history THEN
            INSERT INTO dialoq.job_history (
                queue_id, job_id, finished_as, level, attempts, pushed_at, taken_at, finished_at, job_type, job_key, pushed_by,
                taken_by, last_error, result)
            VALUES (
                v_job.queue_id, v_job.job_id, p_finished_as, v_job.level, v_job.attempts, v_job.pushed_at, v_job.taken_at, p_now,
                v_job.job_type, v_job.job_key, v_job.pushed_by, v_job.taken_by, v_job.last_error, CASE WHEN length(p_results[1]) > 0 THEN p_results[1] END);
        END IF;
        IF v_settings.is_limited THEN
            notices := 'q:' || v_job.queue_id::text;
        END IF;
        RETURN;
    END IF;
    WITH gone AS (
        DELETE FROM dialoq.job AS j
        USING unnest(p_rows) WITH ORDINALITY AS r (row, place)
        WHERE j.ctid = r.row
        RETURNING r.place, j.job_id, j.queue_id, j.level, j.attempts, j.pushed_at, j.taken_at, j.job_type, j.job_key,
            j.unique_key, j.pushed_by, j.taken_by, j.last_error
    ), freed AS (
        -- <freed_names>
    ), settings AS MATERIALIZED (
        SELECT w.queue_id, w.has_history, dialoq.is_limited(w) AS is_limited
        FROM dialoq.work_queue AS w
        WHERE w.queue_id IN (SELECT g.queue_id FROM gone AS g)
    ), kept AS (
        INSERT INTO dialoq.job_history (
            queue_id, job_id, finished_as, level, attempts, pushed_at, taken_at, finished_at, job_type, job_key, pushed_by,
            taken_by, last_error, result)
        SELECT g.queue_id, g.job_id, p_finished_as, g.level, g.attempts, g.pushed_at, g.taken_at, p_now, g.job_type, g.job_key,
            g.pushed_by, g.taken_by, g.last_error, CASE WHEN length(p_results[g.place]) > 0 THEN p_results[g.place] END
        FROM gone AS g
        JOIN settings AS s ON s.queue_id = g.queue_id
        WHERE s.has_history
    )
    SELECT ARRAY(SELECT g.place FROM gone AS g),
        (SELECT string_agg('q:' || s.queue_id::text, ' ') FROM settings AS s WHERE s.is_limited)
    INTO places, notices;
END $$;

-- Removes finished jobs that the histories need not keep, the oldest first.
-- Takes: the time, how many of each queue at most
-- Gives: whether there are more
CREATE OR REPLACE FUNCTION dialoq.cut_job_history(p_now timestamptz, p_top integer) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    q record;
    v_last bigint;
    v_counted bigint;
    v_first bigint;
    v_gone integer;
    v_is_more boolean := false;
BEGIN
    FOR q IN SELECT w.queue_id, w.history_seconds, w.history_rows FROM dialoq.work_queue AS w ORDER BY w.queue_id LOOP
        SELECT h.finish_number INTO v_last
        FROM dialoq.job_history AS h WHERE h.queue_id = q.queue_id ORDER BY h.finish_number DESC LIMIT 1;
        CONTINUE WHEN v_last IS NULL;
        -- To find the first row to keep, as many rows are read as are kept. So it is done once in a twentieth of them.
        SELECT c.finish_number INTO v_counted FROM dialoq.job_history_cut AS c WHERE c.queue_id = q.queue_id;
        v_first := NULL;
        IF v_last - coalesce(v_counted, 0) > q.history_rows / 20 THEN
            SELECT h.finish_number INTO v_first
            FROM dialoq.job_history AS h
            WHERE h.queue_id = q.queue_id ORDER BY h.finish_number DESC OFFSET q.history_rows - 1 LIMIT 1;
        END IF;
        -- Rows of a time that is still to come, after the clock was ahead for a while, are passed over: their age is that of no row behind
        -- them.
        DELETE FROM dialoq.job_history AS h
        WHERE h.ctid = ANY (ARRAY(
            SELECT o.ctid
            FROM (
                SELECT k.finish_number, k.finished_at FROM dialoq.job_history AS k
                WHERE k.queue_id = q.queue_id AND (k.finished_at <= p_now OR k.finish_number < v_first)
                ORDER BY k.finish_number LIMIT p_top) AS f
            CROSS JOIN LATERAL (
                SELECT n.ctid FROM dialoq.job_history AS n
                WHERE n.queue_id = q.queue_id AND n.finish_number = f.finish_number FOR UPDATE SKIP LOCKED) AS o
            WHERE f.finish_number < v_first OR f.finished_at < p_now - q.history_seconds * interval '1 second'));
        GET DIAGNOSTICS v_gone = ROW_COUNT;
        v_is_more := v_is_more OR v_gone >= p_top;
        -- Counted when the last of them are gone.
        IF v_gone < p_top AND v_last - coalesce(v_counted, 0) > q.history_rows / 20 THEN
            INSERT INTO dialoq.job_history_cut AS c (queue_id, finish_number) VALUES (q.queue_id, v_last)
            ON CONFLICT (queue_id) DO UPDATE SET finish_number = excluded.finish_number;
        END IF;
    END LOOP;
    RETURN v_is_more;
END $$;
