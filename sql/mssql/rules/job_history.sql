-- The end of jobs, and the history of a queue, which keeps to its bounds.
-- Takes: see each procedure
-- Gives: notices, added to @notices
-- Errors: none of its own
-- Locks: none; the caller has locked the job

-- A job leaves its queue.
-- Takes: the job, 4 done or 5 cancelled, the result
CREATE PROCEDURE dialoq.finish_job
    @job_id bigint, @finished_as smallint, @result varbinary(max), @now datetime2(6), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @queue_id int, @unique_key nvarchar(256), @has_history bit = 0, @is_limited bit = 0;
    SELECT @queue_id = j.queue_id, @unique_key = j.unique_key FROM dialoq.job AS j WHERE j.job_id = @job_id;
    SELECT @has_history = w.has_history, @is_limited = w.is_limited
    FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id;
    IF @has_history = 1
        INSERT INTO dialoq.job_history (
            queue_id, job_id, finished_as, level, attempts, pushed_at, taken_at, finished_at, job_type, job_key, pushed_by,
            taken_by, last_error, result
        )
        SELECT j.queue_id, j.job_id, @finished_as, j.level, j.attempts, j.pushed_at, j.taken_at, @now, j.job_type, j.job_key,
            j.pushed_by, j.taken_by, j.last_error, CASE WHEN DATALENGTH(@result) > 0 THEN @result END
        FROM dialoq.job AS j WHERE j.job_id = @job_id;
    DELETE FROM dialoq.job WHERE job_id = @job_id;
    -- If the name's window is over, another transaction may have locked its row in order to push the next job of it. The row is
    -- not this job's any more, and its end is not waited for.
    IF @unique_key IS NOT NULL
        DELETE FROM dialoq.unique_job WITH (ROWLOCK, READPAST)
        WHERE queue_id = @queue_id AND unique_key = @unique_key AND key_bytes = DATALENGTH(@unique_key) AND job_id = @job_id
            AND until_at IS NULL;
    IF @is_limited = 1 SET @notices = CONCAT(@notices, N' q:', @queue_id);
END
GO

-- Removes finished jobs that the histories need not keep, the oldest first.
-- Takes: the time, how many of each queue at most
-- Gives: whether there are more
CREATE PROCEDURE dialoq.cut_job_history
    @now datetime2(6), @top int, @is_more bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @queue_id int = -2147483648, @next int, @seconds bigint, @rows bigint, @last bigint, @counted bigint, @first bigint;
    DECLARE @upto bigint, @gone int, @skip bigint, @since datetime2(6);
    SET @is_more = 0;
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = w.queue_id, @seconds = w.history_seconds, @rows = w.history_rows
        FROM dialoq.work_queue AS w WHERE w.queue_id > @queue_id ORDER BY w.queue_id;
        IF @next IS NULL BREAK;
        SET @queue_id = @next;
        SET @last = NULL;
        SELECT TOP (1) @last = h.finish_number
        FROM dialoq.job_history AS h WITH (READCOMMITTEDLOCK, READPAST)
        WHERE h.queue_id = @queue_id ORDER BY h.finish_number DESC;
        IF @last IS NULL CONTINUE;
        -- To find the first row to keep, as many rows are read as are kept. So it is done once in a twentieth of them.
        SET @counted = 0;
        SELECT @counted = c.finish_number FROM dialoq.job_history_cut AS c WHERE c.queue_id = @queue_id;
        SET @first = NULL;
        SET @skip = @rows - 1;
        IF @last - @counted > @rows / 20
            SELECT @first = h.finish_number
            FROM dialoq.job_history AS h WITH (READCOMMITTEDLOCK, READPAST)
            WHERE h.queue_id = @queue_id ORDER BY h.finish_number DESC OFFSET @skip ROWS FETCH NEXT 1 ROWS ONLY;
        SET @upto = NULL;
        -- Rows of a time that is still to come, after the clock was ahead for a while, are passed over.
        SELECT @upto = MAX(f.finish_number)
        FROM (
            SELECT TOP (@top) h.finish_number
            FROM dialoq.job_history AS h WITH (READCOMMITTEDLOCK, READPAST)
            WHERE h.queue_id = @queue_id AND (h.finished_at <= @now OR h.finish_number < @first) ORDER BY h.finish_number
        ) AS f;
        SET @since = dialoq.add_us(@now, -1000000 * @seconds);
        DELETE FROM dialoq.job_history WITH (ROWLOCK, READPAST)
        WHERE queue_id = @queue_id AND finish_number <= @upto AND (finish_number < @first OR finished_at < @since);
        SET @gone = @@ROWCOUNT;
        IF @gone >= @top SET @is_more = 1;
        -- Counted when the last of them are gone.
        IF @gone < @top AND @last - @counted > @rows / 20
        BEGIN
            UPDATE dialoq.job_history_cut SET finish_number = @last WHERE queue_id = @queue_id;
            IF @@ROWCOUNT = 0 INSERT INTO dialoq.job_history_cut (queue_id, finish_number) VALUES (@queue_id, @last);
        END
    END
END
GO
