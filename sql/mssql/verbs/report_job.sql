-- REPORT: notes how far a taken job is.
-- Takes: the job and the token of its taking; the note, 3000 characters at most
-- Gives: nothing
-- Errors: 60005, 60040, 60041, 60042, 60043
-- Locks: the job, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.report_job
    @job_id bigint, @token bigint, @progress nvarchar(max)
AS
BEGIN
    -- <settings>
    DECLARE @queue_id int, @state smallint, @due_at datetime2(6), @now datetime2(6);
    EXEC dialoq.check_length N'a note of progress', @progress, 3000;
    -- <transaction>
    SET @now = dialoq.current_time_utc();
    EXEC dialoq.lock_job @job_id, @token, @now, @queue_id OUTPUT, @state OUTPUT, @due_at OUTPUT;
    UPDATE dialoq.job SET progress = @progress WHERE job_id = @job_id;
    -- </transaction>
END
GO
