-- PUSH: puts a job into a work queue. It takes effect at the commit.
-- Takes: the queue; the type; the key, whose jobs keep their order where the queue limits jobs by key; the level; when it is
--     due: after a delay, or at a time in microseconds since 1970 (both NULL: now); the name by which it is the only job of
--     its queue, and for how long in milliseconds (NULL: until it is finished); the body; the writer's name
-- Gives: job_id, NULL if the job of the unique key is finished; is_new, whether this push made it; notices
-- Errors: 58459, 60002, 60005, 60043
-- Locks: the unique key, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.push_job
    @queue nvarchar(4000), @job_type nvarchar(4000) = N'', @job_key nvarchar(4000) = NULL, @level int = 5,
    @delay_ms bigint = NULL, @due_us bigint = NULL, @unique_key nvarchar(4000) = NULL, @unique_ms bigint = NULL,
    @body varbinary(max) = NULL, @pushed_by nvarchar(4000) = NULL
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @queue_id int, @work_order nvarchar(16), @now datetime2(6), @due datetime2(6);
    DECLARE @job_id bigint, @has_job bit = 0, @until datetime2(6);
    EXEC dialoq.find_work_queue @queue, @queue_id OUTPUT;
    EXEC dialoq.check_length N'the type of a job', @job_type, 128;
    EXEC dialoq.check_length N'the name of a writer', @pushed_by, 128;
    EXEC dialoq.check_length N'the key of a job', @job_key, 128;
    EXEC dialoq.check_range N'the level of a job', @level, 1, 10;
    EXEC dialoq.check_delay N'the delay of a job in milliseconds', @delay_ms, 0;
    IF @unique_key IS NOT NULL
    BEGIN
        EXEC dialoq.check_length N'the unique key of a job', @unique_key, 128;
        EXEC dialoq.check_delay N'the window of a unique key in milliseconds', @unique_ms, 1;
    END
    EXEC dialoq.check_bytes N'the body of a job', @body;
    SELECT @work_order = w.work_order FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id;
    SET @now = dialoq.current_time_utc();
    IF @delay_ms IS NOT NULL
        SET @due = dialoq.add_us(@now, @delay_ms * 1000);
    -- The last day that every language can name, of which Babelfish's DATEADD knows only the beginning.
    ELSE IF @due_us >= 253402214400000000
        SET @due = '9999-12-31 23:59:59.999999';
    ELSE IF @due_us IS NOT NULL
        SET @due = dialoq.add_us('1970-01-01', CASE WHEN @due_us < 0 THEN 0 ELSE @due_us END);
    IF @due <= @now SET @due = NULL;
    -- <transaction>
    IF @unique_key IS NOT NULL
        EXEC dialoq.job_of_name @queue_id, @unique_key, @now, @has_job OUTPUT, @job_id OUTPUT;
    IF @has_job = 0
    BEGIN
        SET @job_id = NEXT VALUE FOR dialoq.next_job_id;
        INSERT INTO dialoq.job (
            job_id, queue_id, rank_from_top, take_order, state, level, due_at, pushed_at, job_type, job_key, unique_key,
            pushed_by, body, strict_order
        ) VALUES (
            @job_id, @queue_id, dialoq.job_rank(@work_order, @level), dialoq.job_place(@work_order, @job_id),
            CASE WHEN @due IS NULL THEN 1 ELSE 0 END, @level, @due, @now, COALESCE(@job_type, N''), @job_key, @unique_key,
            COALESCE(@pushed_by, N''), CASE WHEN DATALENGTH(@body) > 0 THEN @body END,
            dialoq.strict_place(@work_order, @job_id)
        );
        IF @due IS NULL SET @notices = CONCAT(@notices, N' q:', @queue_id);
        ELSE SET @notices = CONCAT(@notices, dialoq.due_notice(@due));
    END
    IF @has_job = 0 AND @unique_key IS NOT NULL
    BEGIN
        SET @until = dialoq.add_us(@now, @unique_ms * 1000);
        UPDATE dialoq.unique_job SET job_id = @job_id, until_at = @until
        WHERE queue_id = @queue_id AND unique_key = @unique_key AND key_bytes = DATALENGTH(@unique_key);
        IF @@ROWCOUNT = 0
            INSERT INTO dialoq.unique_job (queue_id, unique_key, key_bytes, job_id, until_at)
            VALUES (@queue_id, @unique_key, DATALENGTH(@unique_key), @job_id, @until);
    END
    -- </transaction>
    SELECT @job_id AS job_id, CAST(1 - @has_job AS bit) AS is_new, dialoq.distinct_notices(@notices) AS notices;
END
GO
