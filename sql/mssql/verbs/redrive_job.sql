-- REDRIVE: a dead job gets all its attempts again.
-- Takes: the job; of a job that a look at its queue found, the token that it had and, if it matters, the name of its state
-- Gives: notices
-- Errors: 60040, 60042, 60043, 60044
-- Locks: the job, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.redrive_job
    @job_id bigint, @seen_token bigint = NULL, @seen_state nvarchar(4000) = NULL
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @queue_id int, @state smallint, @due_at datetime2(6), @text nvarchar(2048);
    -- <transaction>
    EXEC dialoq.check_job @job_id, NULL, NULL, @queue_id OUTPUT, @state OUTPUT, @due_at OUTPUT;
    IF @state = 3 OR @seen_token IS NOT NULL OR @seen_state IS NOT NULL
    BEGIN
        EXEC dialoq.lock_seen_job @job_id, @seen_token, @seen_state, @queue_id OUTPUT, @state OUTPUT, @due_at OUTPUT;
        -- Another session has redriven it meanwhile.
        IF @state <> 3 EXEC dialoq.unlock_job @job_id;
    END
    IF @state <> 3
    BEGIN
        SET @text = CONCAT(N'job ', @job_id, N' is ',
            CASE @state WHEN 0 THEN N'scheduled' WHEN 1 THEN N'ready' ELSE N'taken' END, N', not dead');
        THROW 60044, @text, 1;
    END
    UPDATE dialoq.job SET state = 1, attempts = 0, due_at = NULL WHERE job_id = @job_id;
    SET @notices = CONCAT(@notices, N' q:', @queue_id);
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
