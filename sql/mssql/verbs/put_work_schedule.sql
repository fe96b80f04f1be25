-- Writes a work schedule, new or not, with the time that it fires next, or removes one.
-- Takes: the columns of work_schedule; or the schedule_id
-- Gives: nothing; on_work_schedule_altered: notices
-- Errors: 60003, 60005
-- Locks: the row
-- Called by: dialoq_admin (put_work_schedule, delete_work_schedule, on_work_schedule_altered)
CREATE PROCEDURE dialoq.put_work_schedule
    @schedule_id int, @name nvarchar(256), @folded_name nvarchar(512), @queue_id int, @is_enabled bit, @cron nvarchar(max),
    @time_zone nvarchar(256), @missed nvarchar(8), @job_type nvarchar(256), @job_key nvarchar(256), @level int,
    @body nvarchar(max), @next_at datetime2(6)
AS
BEGIN
    -- <definition>
    DECLARE @text nvarchar(2048);
    EXEC dialoq.check_name @name;
    IF @folded_name IS NULL OR @folded_name <> dialoq.fold_name(@name)
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'the folded name of work schedule ''', @name, N''' is ''', @folded_name,
            N'''; it must be ''', dialoq.fold_name(@name), N''''));
        THROW 60005, @text, 1;
    END
    BEGIN TRY
        UPDATE dialoq.work_schedule SET
            is_enabled = @is_enabled, cron = @cron, time_zone = @time_zone, missed = @missed, job_type = @job_type,
            job_key = @job_key, level = @level, body = @body, next_at = @next_at, version = version + 1
        WHERE schedule_id = @schedule_id;
        IF @@ROWCOUNT = 0
            INSERT INTO dialoq.work_schedule (
                schedule_id, name, folded_name, queue_id, is_enabled, cron, time_zone, missed, job_type, job_key, level, body,
                next_at
            ) VALUES (
                @schedule_id, @name, @folded_name, @queue_id, @is_enabled, @cron, @time_zone, @missed, @job_type, @job_key,
                @level, @body, @next_at
            );
    END TRY
    BEGIN CATCH
        -- NULL where a value is needed, a number out of its range, a name that another row has.
        IF ERROR_NUMBER() NOT IN (515, 547, 2601, 2627) THROW;
        SET @text = dialoq.throw_text(CONCAT(N'the arguments of dialoq.put_work_schedule make no row: ', ERROR_MESSAGE(),
            N'; correct them'));
        THROW 60005, @text, 1;
    END CATCH
    -- </definition>
END
GO
CREATE PROCEDURE dialoq.delete_work_schedule
    @schedule_id int
AS
BEGIN
    -- <definition>
    DELETE FROM dialoq.work_schedule WHERE schedule_id = @schedule_id;
    -- </definition>
END
GO

-- Notifies every process when the schedule fires next.
CREATE PROCEDURE dialoq.on_work_schedule_altered
    @schedule_id int
AS
BEGIN
    -- <definition>
    DECLARE @notices nvarchar(max);
    SELECT @notices = dialoq.due_notice(s.next_at) FROM dialoq.work_schedule AS s WHERE s.schedule_id = @schedule_id;
    -- </definition>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
