-- The order in which the jobs of a work queue are taken.
-- Takes: see each routine
-- Gives: see each routine
-- Errors: none
-- Locks: none

-- 10 minus the level in a queue that looks at levels, else 0.
CREATE FUNCTION dialoq.job_rank(@work_order nvarchar(16), @level int) RETURNS smallint AS
BEGIN
    RETURN CASE @work_order WHEN N'PRIORITY' THEN 10 - @level ELSE 0 END;
END
GO

-- The job's place within its rank.
CREATE FUNCTION dialoq.job_place(@work_order nvarchar(16), @job_id bigint) RETURNS bigint AS
BEGIN
    RETURN CASE @work_order WHEN N'LIFO' THEN -@job_id ELSE @job_id END;
END
GO

-- The job's place among those of its key, in a queue that gives them one after the other; NULL in others.
CREATE FUNCTION dialoq.strict_place(@work_order nvarchar(16), @job_id bigint) RETURNS bigint AS
BEGIN
    RETURN CASE @work_order WHEN N'FIFO_STRICT' THEN @job_id END;
END
GO

-- The next job of a queue that no other transaction holds, in the order of the queue.
-- Takes: the queue; the type (NULL: any); the ranks; the place after which to look, which moves on
-- Gives: the job; NULL if there is none
CREATE PROCEDURE dialoq.next_job
    @queue_id int, @job_type nvarchar(256), @from int, @to int, @past_rank int OUTPUT, @past_order bigint OUTPUT,
    @job_id bigint OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET @job_id = NULL;
    IF @job_type IS NULL
        SELECT TOP (1) @job_id = r.job_id, @past_rank = r.rank_from_top, @past_order = r.take_order
        FROM dialoq.job AS r WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_state), FORCESEEK)
        WHERE r.queue_id = @queue_id AND r.state = 1 AND r.rank_from_top BETWEEN @from AND @to
            AND (r.rank_from_top > @past_rank OR r.rank_from_top = @past_rank AND r.take_order > @past_order)
            AND APPLOCK_TEST(N'dialoq_user', CONCAT(N'dialoq:', DB_ID(), N':job:', r.job_id), N'Exclusive', N'Transaction') = 1
        ORDER BY r.rank_from_top, r.take_order;
    ELSE
        SELECT TOP (1) @job_id = r.job_id, @past_rank = r.rank_from_top, @past_order = r.take_order
        FROM dialoq.job AS r WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_ready_type), FORCESEEK)
        WHERE r.queue_id = @queue_id AND r.job_type = @job_type AND DATALENGTH(r.job_type) = DATALENGTH(@job_type)
            AND r.state = 1 AND r.rank_from_top BETWEEN @from AND @to
            AND (r.rank_from_top > @past_rank OR r.rank_from_top = @past_rank AND r.take_order > @past_order)
            AND APPLOCK_TEST(N'dialoq_user', CONCAT(N'dialoq:', DB_ID(), N':job:', r.job_id), N'Exclusive', N'Transaction') = 1
        ORDER BY r.rank_from_top, r.take_order;
END
GO
