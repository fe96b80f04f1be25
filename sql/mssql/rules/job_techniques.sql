-- How takes of a queue without limits lock and mark its jobs, by TAKE_BY of the queue, in a transaction of their own. DEFAULT, and
-- every take in a transaction of the caller, takes one job after the other (take_jobs.sql). Each technique passes over the rows and
-- the application locks of other transactions, so takes by different techniques may run at the same time.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: none of its own
-- Locks: the jobs, passing over those that others hold; line_up: see there

-- Lets the takes of a queue choose their jobs one after the other, to the end of the transaction, which is short. After 100 ms a
-- take goes on without the lock: no job goes to two readers, because rows are locked too.
CREATE PROCEDURE dialoq.line_up
    @queue_id int
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':take:', @queue_id);
    EXEC sp_getapplock
        @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 100,
        @DbPrincipal = N'dialoq_user';
END
GO

-- Takes jobs. Babelfish changes no rows by a common table expression or a cursor, and refuses the procedure when it is made; its
-- takes are those of DEFAULT.
-- Gives: as take_ready_jobs; are_taken, 0 if there is no result
IF SERVERPROPERTY('Babelfish') IS NULL
    EXEC(N'
CREATE PROCEDURE dialoq.take_together
    @take_by nvarchar(16), @queue_id int, @name nvarchar(256), @job_count bigint, @job_type nvarchar(256), @from int, @to int,
    @now datetime2(6), @until datetime2(6), @taken_by nvarchar(256), @process uniqueidentifier, @holder uniqueidentifier,
    @is_final bit, @notices nvarchar(max), @are_taken bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @count bigint = 0, @rows int, @job_id bigint, @token bigint;
    DECLARE @taken TABLE (
        rank_from_top smallint NOT NULL, take_order bigint NOT NULL, job_id bigint NOT NULL, token bigint NOT NULL,
        job_type nvarchar(256) NOT NULL, job_key nvarchar(256) NULL, level int NOT NULL, attempts int NOT NULL,
        pushed_at datetime2(6) NOT NULL, pushed_by nvarchar(256) NOT NULL, last_error nvarchar(max) NULL, body varbinary(max) NULL,
        PRIMARY KEY (rank_from_top, take_order)
    );
    SET @are_taken = 0;
    -- <transaction>
    IF @take_by = N''APPLOCK'' EXEC dialoq.line_up @queue_id;
    SET @token = NEXT VALUE FOR dialoq.next_job_token;
    IF @take_by = N''CURSOR''
    BEGIN
        IF @job_type IS NULL
            DECLARE next_jobs CURSOR LOCAL FORWARD_ONLY DYNAMIC SCROLL_LOCKS FOR
                SELECT r.job_id
                FROM dialoq.job AS r WITH (ROWLOCK, UPDLOCK, READCOMMITTEDLOCK, READPAST, INDEX (job_state))
                WHERE r.queue_id = @queue_id AND r.state = 1 AND r.rank_from_top BETWEEN @from AND @to
                    AND APPLOCK_TEST(N''dialoq_user'', CONCAT(N''dialoq:'', DB_ID(), N'':job:'', r.job_id), N''Exclusive'', N''Transaction'') = 1
                ORDER BY r.rank_from_top, r.take_order
                FOR UPDATE OF state, attempts, token, due_at, taken_at, taken_by, progress, process, holder;
        ELSE
            DECLARE next_jobs CURSOR LOCAL FORWARD_ONLY DYNAMIC SCROLL_LOCKS FOR
                SELECT r.job_id
                FROM dialoq.job AS r WITH (ROWLOCK, UPDLOCK, READCOMMITTEDLOCK, READPAST, INDEX (job_ready_type))
                WHERE r.queue_id = @queue_id AND r.job_type = @job_type AND DATALENGTH(r.job_type) = DATALENGTH(@job_type)
                    AND r.state = 1 AND r.rank_from_top BETWEEN @from AND @to
                    AND APPLOCK_TEST(N''dialoq_user'', CONCAT(N''dialoq:'', DB_ID(), N'':job:'', r.job_id), N''Exclusive'', N''Transaction'') = 1
                ORDER BY r.rank_from_top, r.take_order
                FOR UPDATE OF state, attempts, token, due_at, taken_at, taken_by, progress, process, holder;
        OPEN next_jobs;
        WHILE @count < @job_count
        BEGIN
            FETCH NEXT FROM next_jobs INTO @job_id;
            IF @@FETCH_STATUS = -1 BREAK;
            IF @@FETCH_STATUS = -2 CONTINUE;
            IF @count > 0 SET @token = NEXT VALUE FOR dialoq.next_job_token;
            UPDATE dialoq.job
            SET state = 2, attempts = attempts + 1, token = @token, due_at = @until, taken_at = @now, taken_by = @taken_by,
                progress = NULL, process = @process, holder = @holder
            OUTPUT inserted.rank_from_top, inserted.take_order, inserted.job_id, inserted.token, inserted.job_type, inserted.job_key,
                inserted.level, inserted.attempts, inserted.pushed_at, inserted.pushed_by, inserted.last_error, inserted.body
            INTO @taken (
                rank_from_top, take_order, job_id, token, job_type, job_key, level, attempts, pushed_at, pushed_by, last_error,
                body
            )
            WHERE CURRENT OF next_jobs;
            SET @count = @count + @@ROWCOUNT;
        END
        CLOSE next_jobs;
        DEALLOCATE next_jobs;
    END
    ELSE
    BEGIN
        IF @take_by = N''CTE'' AND @job_type IS NULL
        BEGIN;
            WITH next AS (
                SELECT TOP (@job_count)
                    r.state, r.attempts, r.token, r.due_at, r.taken_at, r.taken_by, r.progress, r.process, r.holder,
                    r.rank_from_top, r.take_order, r.job_id, r.job_type, r.job_key, r.level, r.pushed_at, r.pushed_by, r.last_error,
                    r.body
                FROM dialoq.job AS r WITH (ROWLOCK, UPDLOCK, READCOMMITTEDLOCK, READPAST, INDEX (job_state), FORCESEEK)
                WHERE r.queue_id = @queue_id AND r.state = 1 AND r.rank_from_top BETWEEN @from AND @to
                    AND APPLOCK_TEST(N''dialoq_user'', CONCAT(N''dialoq:'', DB_ID(), N'':job:'', r.job_id), N''Exclusive'', N''Transaction'') = 1
                ORDER BY r.rank_from_top, r.take_order
            )
            UPDATE next
            SET state = 2, attempts = attempts + 1, token = @token, due_at = @until, taken_at = @now, taken_by = @taken_by,
                progress = NULL, process = @process, holder = @holder
            OUTPUT inserted.rank_from_top, inserted.take_order, inserted.job_id, inserted.token, inserted.job_type, inserted.job_key,
                inserted.level, inserted.attempts, inserted.pushed_at, inserted.pushed_by, inserted.last_error, inserted.body
            INTO @taken (
                rank_from_top, take_order, job_id, token, job_type, job_key, level, attempts, pushed_at, pushed_by, last_error,
                body
            );
        END
        ELSE IF @take_by = N''CTE''
        BEGIN;
            WITH next AS (
                SELECT TOP (@job_count)
                    r.state, r.attempts, r.token, r.due_at, r.taken_at, r.taken_by, r.progress, r.process, r.holder,
                    r.rank_from_top, r.take_order, r.job_id, r.job_type, r.job_key, r.level, r.pushed_at, r.pushed_by, r.last_error,
                    r.body
                FROM dialoq.job AS r WITH (ROWLOCK, UPDLOCK, READCOMMITTEDLOCK, READPAST, INDEX (job_ready_type), FORCESEEK)
                WHERE r.queue_id = @queue_id AND r.job_type = @job_type AND DATALENGTH(r.job_type) = DATALENGTH(@job_type)
                    AND r.state = 1 AND r.rank_from_top BETWEEN @from AND @to
                    AND APPLOCK_TEST(N''dialoq_user'', CONCAT(N''dialoq:'', DB_ID(), N'':job:'', r.job_id), N''Exclusive'', N''Transaction'') = 1
                ORDER BY r.rank_from_top, r.take_order
            )
            UPDATE next
            SET state = 2, attempts = attempts + 1, token = @token, due_at = @until, taken_at = @now, taken_by = @taken_by,
                progress = NULL, process = @process, holder = @holder
            OUTPUT inserted.rank_from_top, inserted.take_order, inserted.job_id, inserted.token, inserted.job_type, inserted.job_key,
                inserted.level, inserted.attempts, inserted.pushed_at, inserted.pushed_by, inserted.last_error, inserted.body
            INTO @taken (
                rank_from_top, take_order, job_id, token, job_type, job_key, level, attempts, pushed_at, pushed_by, last_error,
                body
            );
        END
        ELSE IF @job_type IS NULL
            UPDATE j
            SET state = 2, attempts = attempts + 1, token = @token, due_at = @until, taken_at = @now, taken_by = @taken_by,
                progress = NULL, process = @process, holder = @holder
            OUTPUT inserted.rank_from_top, inserted.take_order, inserted.job_id, inserted.token, inserted.job_type, inserted.job_key,
                inserted.level, inserted.attempts, inserted.pushed_at, inserted.pushed_by, inserted.last_error, inserted.body
            INTO @taken (
                rank_from_top, take_order, job_id, token, job_type, job_key, level, attempts, pushed_at, pushed_by, last_error,
                body
            )
            FROM dialoq.job AS j WITH (ROWLOCK, READPAST)
            WHERE j.state = 1 AND j.job_id IN (
                SELECT TOP (@job_count) r.job_id
                FROM dialoq.job AS r WITH (ROWLOCK, UPDLOCK, READCOMMITTEDLOCK, READPAST, INDEX (job_state), FORCESEEK)
                WHERE r.queue_id = @queue_id AND r.state = 1 AND r.rank_from_top BETWEEN @from AND @to
                    AND APPLOCK_TEST(N''dialoq_user'', CONCAT(N''dialoq:'', DB_ID(), N'':job:'', r.job_id), N''Exclusive'', N''Transaction'') = 1
                ORDER BY r.rank_from_top, r.take_order
            );
        ELSE
            UPDATE j
            SET state = 2, attempts = attempts + 1, token = @token, due_at = @until, taken_at = @now, taken_by = @taken_by,
                progress = NULL, process = @process, holder = @holder
            OUTPUT inserted.rank_from_top, inserted.take_order, inserted.job_id, inserted.token, inserted.job_type, inserted.job_key,
                inserted.level, inserted.attempts, inserted.pushed_at, inserted.pushed_by, inserted.last_error, inserted.body
            INTO @taken (
                rank_from_top, take_order, job_id, token, job_type, job_key, level, attempts, pushed_at, pushed_by, last_error,
                body
            )
            FROM dialoq.job AS j WITH (ROWLOCK, READPAST)
            WHERE j.state = 1 AND j.job_id IN (
                SELECT TOP (@job_count) r.job_id
                FROM dialoq.job AS r WITH (ROWLOCK, UPDLOCK, READCOMMITTEDLOCK, READPAST, INDEX (job_ready_type), FORCESEEK)
                WHERE r.queue_id = @queue_id AND r.job_type = @job_type AND DATALENGTH(r.job_type) = DATALENGTH(@job_type)
                    AND r.state = 1 AND r.rank_from_top BETWEEN @from AND @to
                    AND APPLOCK_TEST(N''dialoq_user'', CONCAT(N''dialoq:'', DB_ID(), N'':job:'', r.job_id), N''Exclusive'', N''Transaction'') = 1
                ORDER BY r.rank_from_top, r.take_order
            );
        SELECT @count = COUNT_BIG(*) FROM @taken;
        -- Each taking has a token of its own. NEXT VALUE FOR may not stand in a statement with TOP.
        IF @count > 1
        BEGIN
            UPDATE j SET token = NEXT VALUE FOR dialoq.next_job_token
            FROM @taken AS t
            INNER LOOP JOIN dialoq.job AS j WITH (ROWLOCK) ON j.job_id = t.job_id;
            UPDATE t SET token = j.token
            FROM @taken AS t
            INNER LOOP JOIN dialoq.job AS j ON j.job_id = t.job_id;
        END
    END
    IF @count > 0 SET @are_taken = 1;
    IF @is_final = 1
    BEGIN
        SET @job_id = 0;
        WHILE @job_id IS NOT NULL
        BEGIN
            SET @job_id = (SELECT MIN(t.job_id) FROM @taken AS t WHERE t.job_id > @job_id);
            IF @job_id IS NOT NULL EXEC dialoq.finish_job @job_id, 4, NULL, @now, @notices OUTPUT;
        END
    END
    -- Every process looks for what is due once a minute.
    IF @count > 0 AND @until < DATEADD(minute, 1, @now) SET @notices = CONCAT(@notices, dialoq.due_notice(@until));
    -- Before COMMIT: if this failed after COMMIT, the jobs would be lost.
    SET @notices = dialoq.distinct_notices(@notices);
    -- </transaction>
    IF @are_taken = 1
        SELECT t.job_id, t.token, @name AS queue, t.job_type, t.job_key, t.level, t.attempts AS attempt, t.pushed_at, t.pushed_by,
            @until AS lease_until, t.last_error, t.body,
            CASE ROW_NUMBER() OVER (ORDER BY t.rank_from_top, t.take_order) WHEN 1 THEN @notices END AS notices
        FROM @taken AS t
        ORDER BY t.rank_from_top, t.take_order;
END
')
GO
