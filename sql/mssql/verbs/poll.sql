-- The version of the definitions, the time of the next event, and the queues with messages to receive. The poller of every
-- process calls this, so on an idle broker it costs some seeks, and one for each work queue.
-- Takes: nothing
-- Gives: catalog_version; due_at (NULL: no event); ready_queues, '<queue_id>:<groups, 1000 at most> ...' of the groups that
--     no session holds, and of the jobs that are ready, where limits hold some back one; has_locked, whether a transaction holds a group with messages; now_at, the server's clock
-- Errors: 1222 if another session keeps a row from being read for a second (READ_COMMITTED_SNAPSHOT OFF)
-- Locks: none
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.poll
AS
BEGIN
    -- <settings>
    -- The client polls on the connection on which it records what its transactions receive (begin_attempt). Without this limit a
    -- transaction could wait for a poll that waits for a lock of that transaction.
    SET LOCK_TIMEOUT 1000;
    DECLARE @version bigint, @due datetime2(6), @queues nvarchar(max), @has_locked bit = 0;
    DECLARE @recheck_at datetime2(6), @is_manual bit = 0, @now datetime2(6), @clock datetime2(6);
    DECLARE @queue_id int = -2147483648, @next int, @is_limited bit, @is_there bit, @jobs int;
    SELECT @version = b.catalog_version, @is_manual = CASE WHEN b.manual_now IS NULL THEN 0 ELSE 1 END,
        @now = b.manual_now
    FROM dialoq.broker AS b WHERE b.singleton = 1;
    SET @clock = COALESCE(@now, SYSUTCDATETIME());
    SELECT @due = MIN(e.due_at)
    FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST) WHERE e.due_at IS NOT NULL;
    IF EXISTS (SELECT 1 FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST))
    BEGIN
        DECLARE @rows TABLE (queue_id int NOT NULL, group_id uniqueidentifier NOT NULL);
        DECLARE @groups TABLE (queue_id int NOT NULL, group_id uniqueidentifier NOT NULL, is_free int NOT NULL);
        DECLARE @ready TABLE (queue_id int NOT NULL, free_groups int NOT NULL);
        INSERT INTO @rows (queue_id, group_id)
        SELECT q.queue_id, f.conversation_group_id
        FROM dialoq.service_queue AS q
        CROSS APPLY (
            SELECT TOP (1000) r.conversation_group_id
            FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
            WHERE r.queue_id = q.queue_id ORDER BY r.rank_from_top, r.oldest
        ) AS f
        -- While a definition holds receives back, nothing of a queue is ready.
        WHERE q.receives_held_until IS NULL OR q.receives_held_until <= @clock OR q.receives_held_until > DATEADD(second, 60, @clock);
        INSERT INTO @groups (queue_id, group_id, is_free)
        SELECT r.queue_id, r.group_id,
            APPLOCK_TEST(N'dialoq_user', CONCAT(N'dialoq:group:', r.group_id), N'Exclusive', N'Session')
        FROM @rows AS r GROUP BY r.queue_id, r.group_id;
        -- A row of the claim index may be out of date; of many rows some are current.
        IF 50 >= (SELECT COUNT(*) FROM @groups)
            DELETE FROM g
            FROM @groups AS g
            WHERE NOT EXISTS (
                SELECT 1 FROM dialoq.group_rank AS k
                WHERE k.conversation_group_id = g.group_id AND k.queue_id = g.queue_id);
        INSERT INTO @ready (queue_id, free_groups)
        SELECT g.queue_id, COUNT(*) FROM @groups AS g WHERE g.is_free = 1 GROUP BY g.queue_id;
        SELECT @queues = STRING_AGG(CAST(CONCAT(r.queue_id, N':', r.free_groups) AS nvarchar(max)), N' ')
        FROM @ready AS r;
        IF EXISTS (SELECT 1 FROM @groups AS g WHERE g.is_free = 0) SET @has_locked = 1;
    END
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = w.queue_id, @is_limited = w.is_limited
        FROM dialoq.work_queue AS w WHERE w.queue_id > @queue_id AND w.is_enabled = 1 ORDER BY w.queue_id;
        IF @next IS NULL BREAK;
        SET @queue_id = @next;
        IF @is_limited = 1
        BEGIN
            EXEC dialoq.has_job_to_take @queue_id, @clock, @is_there OUTPUT;
            SET @jobs = @is_there;
        END
        ELSE
            SELECT @jobs = COUNT(*)
            FROM (
                SELECT TOP (1000) j.job_id
                FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_state), FORCESEEK)
                WHERE j.queue_id = @queue_id AND j.state = 1
            ) AS f;
        IF @jobs > 0 SET @queues = CONCAT(@queues + N' ', @queue_id, N':', @jobs);
    END
    SELECT TOP (1) @recheck_at = j.due_at
    FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_due))
    WHERE j.due_at IS NOT NULL AND j.holder IS NULL ORDER BY j.due_at;
    IF @recheck_at < @due OR @due IS NULL SET @due = @recheck_at;
    SET @recheck_at = NULL;
    SELECT TOP (1) @recheck_at = r.wake_at
    FROM dialoq.work_rate AS r WITH (READCOMMITTEDLOCK, READPAST, INDEX (work_rate_wake))
    WHERE r.wake_at IS NOT NULL ORDER BY r.wake_at;
    IF @recheck_at < @due OR @due IS NULL SET @due = @recheck_at;
    SET @recheck_at = NULL;
    SELECT TOP (1) @recheck_at = s.next_at
    FROM dialoq.work_schedule AS s WITH (READCOMMITTEDLOCK, READPAST, INDEX (work_schedule_next))
    WHERE s.next_at IS NOT NULL ORDER BY s.next_at;
    IF @recheck_at < @due OR @due IS NULL SET @due = @recheck_at;
    SET @recheck_at = NULL;
    SELECT @recheck_at = MIN(q.receives_held_until) FROM dialoq.service_queue AS q WITH (READUNCOMMITTED)
    WHERE q.receives_held_until > @clock;
    IF @recheck_at < @due OR @due IS NULL SET @due = @recheck_at;
    SET @recheck_at = NULL;
    IF @is_manual = 0
        SELECT @recheck_at = MIN(u.recheck_at) FROM dialoq.recheck_queue AS u WITH (READCOMMITTEDLOCK, READPAST);
    -- As in tick.
    IF @recheck_at > DATEADD(second, 90, SYSUTCDATETIME()) SET @recheck_at = SYSUTCDATETIME();
    IF @recheck_at < @due OR @due IS NULL SET @due = @recheck_at;
    -- The host of a transaction that has received, or holds jobs, may die without closing its connection.
    IF @is_manual = 0 AND (
        EXISTS (SELECT 1 FROM dialoq.receive_attempt AS a WITH (READCOMMITTEDLOCK, READPAST))
        OR EXISTS (
            SELECT 1 FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_holder))
            WHERE j.process IS NOT NULL))
    BEGIN
        SET @recheck_at = DATEADD(second, 5, SYSUTCDATETIME());
        IF @recheck_at < @due OR @due IS NULL SET @due = @recheck_at;
    END
    SELECT @version AS catalog_version, @due AS due_at, COALESCE(@queues, N'') AS ready_queues, @has_locked AS has_locked,
        COALESCE(@now, CAST(SYSUTCDATETIME() AS datetime2(6))) AS now_at;
END
GO
