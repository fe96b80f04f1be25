-- One step of a work schedule: pushes a job and sets the next time, if the row still has the version and the time that the
-- caller has read. So any number of processes may call it, and each time fires once.
-- Takes: the schedule; its version and its next time as they were read; its next time from now on (NULL: it fires no more,
--     which no line says before the year 4900); the time that the job is for (NULL: no job, the time is left out, if MISSED =
--     SKIP); the job's body, which is that of the schedule with the time in it
-- Gives: is_fired, whether the row was as it was read; notices
-- Errors: 8459, 60005
-- Locks: the row; if another session has locked it, nothing happens
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.fire_schedule(
    p_schedule_id integer, p_version bigint, p_due_at timestamptz, p_next_at timestamptz, p_time timestamptz, p_body bytea)
RETURNS TABLE (is_fired boolean, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    s dialoq.work_schedule;
    q dialoq.work_queue;
    v_now timestamptz := dialoq.current_time_utc();
    v_id bigint;
    v_body bytea;
    v_is_new boolean;
BEGIN
    PERFORM dialoq.check_isolation();
    IF NOT coalesce(p_next_at > p_due_at AND p_next_at < '9999-12-31 23:59:59Z', p_due_at > '4900-01-01Z', true) THEN
        PERFORM dialoq.fail(60005, format('the next time of a work schedule is %s; it must be after %s, in or before the year 9999',
            p_next_at, p_due_at));
    END IF;
    IF NOT coalesce(p_time >= p_due_at AND p_time < '9999-12-31 23:59:59Z', true) THEN
        PERFORM dialoq.fail(60005, format('the time that a job is for is %s; it must not be before %s', p_time, p_due_at));
    END IF;
    PERFORM dialoq.check_bytes('the body of a job', p_body);
    SELECT * INTO s FROM dialoq.work_schedule AS f
    WHERE f.schedule_id = p_schedule_id AND f.version = p_version AND f.next_at = p_due_at AND f.next_at <= v_now
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, NULL::text;
        RETURN;
    END IF;
    IF p_time IS NULL AND s.missed <> 'SKIP' THEN
        PERFORM dialoq.fail(60005, format('the time that a job of work schedule ''%s'' is for is NULL; only a schedule of MISSED = SKIP '
            'leaves times out', s.name));
    ELSIF p_time IS NOT NULL THEN
        v_body := convert_to(replace(s.body, '{time}', to_char(p_time AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')), 'UTF8');
        IF coalesce(p_body, '') <> v_body OR date_trunc('second', p_time) <> p_time THEN
            PERFORM dialoq.fail(60005, format('the body of a job of work schedule ''%s'' for %s is another one; it is the BODY of the '
                'schedule, in which {time} is that second', s.name, p_time));
        END IF;
    END IF;
    -- A client counts the next time of an ALTER from the clock as it was read last, so it may set a schedule back to a time that has
    -- fired: that pushes no job. A last time that is to come is of a clock that was wrong.
    v_is_new := p_time IS NOT NULL AND (s.last_at BETWEEN p_time AND v_now) IS NOT TRUE;
    UPDATE dialoq.work_schedule AS f SET next_at = p_next_at, last_at = CASE WHEN v_is_new THEN p_time ELSE f.last_at END
    WHERE f.schedule_id = s.schedule_id;
    IF v_is_new THEN
        SELECT * INTO STRICT q FROM dialoq.work_queue AS w WHERE w.queue_id = s.queue_id;
        v_id := nextval('dialoq.next_job_id');
        INSERT INTO dialoq.job (
            job_id, queue_id, rank_from_top, take_order, state, level, pushed_at, job_type, job_key, pushed_by, has_key_limit, body)
        VALUES (
            v_id, q.queue_id, dialoq.job_rank(q.work_order, s.level), dialoq.job_place(q.work_order, v_id), 1, s.level, v_now,
            s.job_type, s.job_key, left('schedule ' || s.name, 128), dialoq.limits_keys(q),
            CASE WHEN length(p_body) > 0 THEN p_body END);
    END IF;
    RETURN QUERY SELECT true, dialoq.publish_notices(concat_ws(' ',
        CASE WHEN v_is_new THEN 'q:' || q.queue_id::text END, dialoq.due_notice(p_next_at)));
END $$;
