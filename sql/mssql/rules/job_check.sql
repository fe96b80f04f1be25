-- The checks of the arguments of the verbs of work queues, in the order of every store.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: see each procedure
-- Locks: none

-- Refuses NULL and a number out of its range.
-- Errors: 60005
CREATE PROCEDURE dialoq.check_range
    @what nvarchar(128), @value bigint, @least bigint, @most bigint
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048);
    IF @value BETWEEN @least AND @most RETURN;
    SET @text = CONCAT(@what, N' is ', COALESCE(CAST(@value AS nvarchar(32)), N'NULL'), N'; it must be ', @least, N' to ', @most);
    THROW 60005, @text, 1;
END
GO

-- Refuses a text that is longer than the tables keep.
-- Errors: 60005
CREATE PROCEDURE dialoq.check_length
    @what nvarchar(128), @value nvarchar(max), @most int
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048), @count int = COALESCE(LEN(@value + N'.') - 1, 0);
    IF @count <= @most RETURN;
    -- A character takes one unit or two.
    IF @count <= 2 * @most SET @count = dialoq.character_count(@value, @most);
    IF @count <= @most RETURN;
    SET @text = CONCAT(@what, N' is a text of ', @count, N' characters; it must be at most ', @most, N' characters');
    THROW 60005, @text, 1;
END
GO

-- Refuses a time span below the least or above ten years. NULL is none.
-- Errors: 60005
CREATE PROCEDURE dialoq.check_delay
    @what nvarchar(128), @ms bigint, @least int
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048);
    IF @ms IS NULL OR @ms BETWEEN @least AND 315360000000 RETURN;
    SET @text = CONCAT(@what, N' is ', @ms, N'; it must be ', @least, N' to 315360000000 (ten years)');
    THROW 60005, @text, 1;
END
GO

-- Refuses more bytes than a value of every store keeps. A client of Dialoq has a limit of its own (max_body_bytes).
-- Errors: 58459
CREATE PROCEDURE dialoq.check_bytes
    @what nvarchar(128), @bytes varbinary(max)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048);
    IF @bytes IS NULL OR DATALENGTH(@bytes) <= 1000000000 RETURN;
    SET @text = CONCAT(@what, N' has ', DATALENGTH(@bytes), N' bytes; the most is 1000000000');
    THROW 58459, @text, 1;
END
GO

-- The work queue of that name.
-- Errors: 60002
CREATE PROCEDURE dialoq.find_work_queue
    @queue nvarchar(4000), @queue_id int OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048);
    SET @queue_id = NULL;
    SELECT @queue_id = w.queue_id
    FROM dialoq.work_queue AS w
    WHERE w.folded_name = dialoq.fold_name(@queue) AND DATALENGTH(w.folded_name) = DATALENGTH(@queue);
    IF @queue_id IS NOT NULL RETURN;
    SET @text = dialoq.throw_text(CONCAT(N'work queue ''', @queue, N''' was not found'));
    THROW 60002, @text, 1;
END
GO

-- Refuses a TAKE.
-- Errors: 60005
CREATE PROCEDURE dialoq.check_take
    @queue_id int, @job_count bigint, @job_type nvarchar(4000), @lowest int, @highest int, @oldest bit, @has_lease bit,
    @lease_ms bigint, @taken_by nvarchar(4000)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048), @name nvarchar(256), @work_order nvarchar(16);
    EXEC dialoq.check_range N'the number of jobs to take', @job_count, 1, 10000;
    EXEC dialoq.check_length N'the name of a reader', @taken_by, 128;
    EXEC dialoq.check_length N'the type of a job', @job_type, 128;
    IF @has_lease = 1 EXEC dialoq.check_delay N'a lease in milliseconds', @lease_ms, 1;
    ELSE IF @lease_ms IS NOT NULL
    BEGIN
        -- The commit of such a take completes its jobs: a caller that wanted leases lost them if it died.
        SET @text = CONCAT(N'lease_ms is ', @lease_ms, N' and has_lease is not 1, so the take would complete the jobs; ',
            N'give has_lease 1, or no lease_ms');
        THROW 60005, @text, 1;
    END
    IF COALESCE(@lowest, 1) < 1 OR COALESCE(@highest, 10) NOT BETWEEN COALESCE(@lowest, 1) AND 10
    BEGIN
        SET @text = CONCAT(N'the levels to take from are ', COALESCE(@lowest, 1), N' to ', COALESCE(@highest, 10),
            N'; they must be 1 to 10, the lowest first');
        THROW 60005, @text, 1;
    END
    IF @lowest IS NULL AND @highest IS NULL AND COALESCE(@oldest, 0) = 0 RETURN;
    SELECT @name = w.name, @work_order = w.work_order FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id;
    IF @work_order = N'PRIORITY' RETURN;
    SET @text = dialoq.throw_text(CONCAT(N'work queue ''', @name, N''' has ORDER = ', @work_order,
        N': only a queue of ORDER = PRIORITY can be asked for levels or for the oldest'));
    THROW 60005, @text, 1;
END
GO
