-- One step of a work schedule: pushes a job and sets the next time, if the row still has the version and the time that the
-- caller has read. So any number of processes may call it, and each time fires once.
-- Takes: the schedule; its version and its next time as they were read; its next time from now on (NULL: it fires no more, which
--     no line says before the year 4900); the time that the job is for (NULL: no job, the time is left out, if MISSED = SKIP); the
--     job's body, which is that of the schedule with the time in it
-- Gives: is_fired, whether the row was as it was read; notices
-- Errors: 58459, 60002, 60005
-- Locks: the schedule; if another session has locked it, nothing happens
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.fire_schedule
    @schedule_id int, @version bigint, @due_at datetime2(6), @next_at datetime2(6), @time datetime2(6), @body varbinary(max)
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @is_fired bit = 0, @is_new bit = 0, @is_locked bit, @now datetime2(6), @text nvarchar(2048);
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':schedule:', @schedule_id);
    DECLARE @queue_id int, @work_order nvarchar(16), @job_id bigint, @level int, @type nvarchar(256), @key nvarchar(256);
    DECLARE @name nvarchar(256), @missed nvarchar(8), @template nvarchar(max), @right_body varbinary(max), @latest datetime2(6) = '9999-12-31';
    DECLARE @last_at datetime2(6);
    IF @next_at IS NULL AND COALESCE(@due_at, @latest) <= '4900-01-01' OR @next_at <= @due_at OR @next_at >= @latest
    BEGIN
        SET @text = CONCAT(N'the next time of a work schedule is ', COALESCE(dialoq.time_text(@next_at), N'NULL'),
            N'; it must be after ', dialoq.time_text(@due_at), N', in or before the year 9999');
        THROW 60005, @text, 1;
    END
    IF @time < @due_at OR @time >= @latest
    BEGIN
        SET @text = CONCAT(N'the time that a job is for is ', dialoq.time_text(@time), N'; it must not be before ',
            dialoq.time_text(@due_at));
        THROW 60005, @text, 1;
    END
    EXEC dialoq.check_bytes N'the body of a job', @body;
    -- <transaction>
    SET @now = dialoq.current_time_utc();
    EXEC dialoq.try_lock @resource, N'Exclusive', @is_locked OUTPUT;
    IF @is_locked = 1
        SELECT @queue_id = s.queue_id, @level = s.level, @type = s.job_type, @key = s.job_key, @name = s.name,
            @missed = s.missed, @template = s.body, @last_at = s.last_at
        FROM dialoq.work_schedule AS s WITH (READCOMMITTEDLOCK, READPAST)
        WHERE s.schedule_id = @schedule_id AND s.version = @version AND s.next_at = @due_at AND s.next_at <= @now;
    IF @queue_id IS NOT NULL AND @time IS NULL AND @missed <> N'SKIP'
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'the time that a job of work schedule ''', @name, N''' is for is NULL; only a schedule ',
            N'with MISSED = SKIP leaves times out'));
        THROW 60005, @text, 1;
    END
    IF @queue_id IS NOT NULL AND @time IS NOT NULL
    BEGIN
        SELECT @work_order = w.work_order FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id;
        IF @work_order IS NULL
        BEGIN
            SET @text = dialoq.throw_text(CONCAT(N'work queue ', @queue_id, N' of work schedule ''', @name, N''' was not found'));
            THROW 60002, @text, 1;
        END
        SET @right_body = dialoq.schedule_body(@template, @time);
        -- Bytes count as equal if one has zeros at its end.
        IF COALESCE(@body, 0x) <> @right_body OR COALESCE(DATALENGTH(@body), 0) <> DATALENGTH(@right_body)
        BEGIN
            SET @text = dialoq.throw_text(CONCAT(N'the body of a job of work schedule ''', @name, N''' at ',
                dialoq.time_text(@time), N' is not that of its definition'));
            THROW 60005, @text, 1;
        END
    END
    IF @queue_id IS NOT NULL
    BEGIN
        -- A client counts the next time of an ALTER from the clock as it was read last, so it may set a schedule back to a time that has
        -- fired: that pushes no job. A last time that is to come is of a clock that was wrong.
        IF @time IS NOT NULL AND (@last_at IS NULL OR @last_at < @time OR @last_at > @now) SET @is_new = 1;
        UPDATE dialoq.work_schedule WITH (ROWLOCK, READPAST)
        SET next_at = @next_at, last_at = CASE @is_new WHEN 1 THEN @time ELSE last_at END
        WHERE schedule_id = @schedule_id AND version = @version AND next_at = @due_at;
        SET @is_fired = @@ROWCOUNT;
    END
    IF @is_fired = 1 AND @is_new = 1
    BEGIN
        SET @job_id = NEXT VALUE FOR dialoq.next_job_id;
        INSERT INTO dialoq.job (
            job_id, queue_id, rank_from_top, take_order, state, level, pushed_at, job_type, job_key, pushed_by, body,
            strict_order
        ) VALUES (
            @job_id, @queue_id, dialoq.job_rank(@work_order, @level), dialoq.job_place(@work_order, @job_id), 1, @level, @now,
            @type, @key, dialoq.first_characters(CONCAT(N'schedule ', @name), 128), CASE WHEN DATALENGTH(@body) > 0 THEN @body END,
            dialoq.strict_place(@work_order, @job_id)
        );
        SET @notices = CONCAT(@notices, N' q:', @queue_id);
    END
    IF @is_fired = 1 SET @notices = CONCAT(@notices, dialoq.due_notice(@next_at));
    -- </transaction>
    SELECT @is_fired AS is_fired, dialoq.distinct_notices(@notices) AS notices;
END
GO
