-- What there is to do: the version of the definitions, when something is due, where something can be received. The poller
-- of every process asks this, so on an idle broker it is three seeks.
-- Takes: nothing
-- Gives: catalog_version; due_at (NULL: nothing); ready_queues, '<queue_id>:<groups, 1000 at most> ...' of the groups that
--     nobody holds; has_locked, whether a transaction holds a group that has something
-- Errors: none
-- Locks: none
IF OBJECT_ID(N'dialoq.look') IS NOT NULL DROP PROCEDURE dialoq.look
GO
CREATE PROCEDURE dialoq.look
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @version bigint, @due datetime2(6), @queues nvarchar(max), @has_locked bit = 0;
    DECLARE @ready TABLE (queue_id int NOT NULL, free_groups int NOT NULL, locked_groups int NOT NULL);
    SELECT @version = b.catalog_version FROM dialoq.broker AS b WHERE b.singleton = 1;
    SELECT @due = MIN(e.due_at)
    FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST) WHERE e.due_at IS NOT NULL;
    IF EXISTS (SELECT 1 FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST))
    BEGIN
        INSERT INTO @ready (queue_id, free_groups, locked_groups)
        SELECT t.queue_id, SUM(t.is_free), SUM(1 - t.is_free)
        FROM (
            SELECT g.queue_id, APPLOCK_TEST(
                N'public', CONCAT(N'dialoq:group:', g.conversation_group_id), N'Exclusive', N'Session') AS is_free
            FROM (
                SELECT DISTINCT h.queue_id, h.conversation_group_id, h.all_rows
                FROM (
                    SELECT q.queue_id, f.conversation_group_id, COUNT(*) OVER (PARTITION BY q.queue_id) AS all_rows
                    FROM dialoq.service_queue AS q
                    CROSS APPLY (
                        SELECT TOP (1000) r.conversation_group_id
                        FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
                        WHERE r.queue_id = q.queue_id ORDER BY r.below_top, r.oldest
                    ) AS f
                ) AS h
            ) AS g
            -- A row of the claim index promises nothing; where many are, some are true.
            WHERE g.all_rows > 50
                OR EXISTS (SELECT 1 FROM dialoq.group_rank(g.conversation_group_id, g.queue_id) AS k WHERE k.oldest IS NOT NULL)
        ) AS t
        GROUP BY t.queue_id;
        SELECT @queues = STRING_AGG(CAST(CONCAT(r.queue_id, N':', r.free_groups) AS nvarchar(max)), N' ')
        FROM @ready AS r WHERE r.free_groups > 0;
        IF EXISTS (SELECT 1 FROM @ready AS r WHERE r.locked_groups > 0) SET @has_locked = 1;
    END
    SELECT @version AS catalog_version, @due AS due_at, COALESCE(@queues, N'') AS ready_queues, @has_locked AS has_locked;
END
GO
