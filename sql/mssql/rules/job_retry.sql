-- The end of an attempt without success: reported, the lease is over, the transaction was rolled back, the reader died.
-- Takes: see each routine
-- Gives: see each routine
-- Errors: none of its own
-- Locks: none; the caller has locked the job

-- The pause before the next attempt, in microseconds, also at a conversation group. The jitter is made of the job's id and the
-- attempt, so that every store gives the same pause; it only has to differ from job to job.
CREATE FUNCTION dialoq.retry_delay_us(
    @delay_ms bigint, @factor_percent bigint, @most_ms bigint, @jitter_percent bigint, @job_id bigint, @attempts int)
RETURNS bigint AS
BEGIN
    DECLARE @most bigint = @most_ms * 1000, @attempt int = 2, @spread bigint;
    DECLARE @delay bigint = 1000 * CASE WHEN @delay_ms < @most_ms THEN @delay_ms ELSE @most_ms END;
    WHILE @attempt <= @attempts AND @delay < @most AND @delay > 0 AND @factor_percent > 100
    BEGIN
        SET @delay = @delay * @factor_percent / 100;
        IF @delay > @most SET @delay = @most;
        SET @attempt = @attempt + 1;
    END
    SET @spread = ((@job_id % 1000003) * 7919 + CAST(@attempts AS bigint) * 104729) % 2001;
    SET @delay = @delay + @delay / 1000 * (@spread - 1000) / 100 * @jitter_percent;
    RETURN CASE WHEN @delay < @most THEN @delay ELSE @most END;
END
GO

-- The attempt at a taken job has failed.
-- Takes: the job, why, the pause before the next attempt (NULL: as the queue's settings say), whether there is no next one
-- Gives: the state after it; notices, added to @notices
CREATE PROCEDURE dialoq.fail_attempt
    @job_id bigint, @reason nvarchar(max), @retry_in_ms bigint, @is_last bit, @now datetime2(6), @state smallint OUTPUT,
    @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @queue_id int, @attempts int, @max_attempts bigint, @is_limited bit, @delay bigint, @due datetime2(6);
    SELECT @queue_id = j.queue_id, @attempts = j.attempts FROM dialoq.job AS j WHERE j.job_id = @job_id;
    SELECT @max_attempts = w.max_attempts, @is_limited = w.is_limited,
        @delay = dialoq.retry_delay_us(w.retry_delay_ms, w.retry_factor_percent, w.max_retry_delay_ms, w.retry_jitter_percent,
            @job_id, @attempts)
    FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id;
    IF @retry_in_ms IS NOT NULL SET @delay = @retry_in_ms * 1000;
    SET @state = CASE
        WHEN @max_attempts IS NULL OR @attempts >= @max_attempts OR @is_last = 1 THEN 3
        WHEN @delay = 0 THEN 1
        ELSE 0 END;
    IF @state = 0 SET @due = dialoq.add_us(@now, @delay);
    UPDATE dialoq.job
    SET state = @state, due_at = @due, last_error = @reason, failed_at = @now, process = NULL, holder = NULL
    WHERE job_id = @job_id;
    IF @state = 1 OR @is_limited = 1 SET @notices = CONCAT(@notices, N' q:', @queue_id);
    SET @notices = CONCAT(@notices, dialoq.due_notice(@due));
END
GO

-- Gives a taken job back as if it had not been taken.
-- Gives: notices, added to @notices
CREATE PROCEDURE dialoq.return_job
    @job_id bigint, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @queue_id int;
    SELECT @queue_id = j.queue_id FROM dialoq.job AS j WHERE j.job_id = @job_id;
    UPDATE dialoq.job SET state = 1, attempts = attempts - 1, due_at = NULL, process = NULL, holder = NULL
    WHERE job_id = @job_id;
    SET @notices = CONCAT(@notices, N' q:', @queue_id);
END
GO
