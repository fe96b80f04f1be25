-- Poison messages: counting the rollbacks of transactions that received, and what the fifth in a row does.
-- Takes: see each procedure
-- Gives: notices, added to @notices
-- Errors: none of its own
-- Locks: see each procedure

-- Forgets the rollbacks of a queue, but those that another transaction is about to forget; never waits.
CREATE PROCEDURE dialoq.forget_rollbacks
    @queue_id int
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':rollbacks:', @queue_id), @got int;
    IF NOT EXISTS (
        SELECT 1 FROM dialoq.queue_rollback AS r WITH (READCOMMITTEDLOCK, READPAST) WHERE r.queue_id = @queue_id)
        RETURN;
    IF APPLOCK_TEST(N'dialoq_user', @resource, N'Exclusive', N'Transaction') = 0 RETURN;
    EXEC @got = sp_getapplock
        @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0,
        @DbPrincipal = N'dialoq_user';
    IF @got >= 0 DELETE FROM dialoq.queue_rollback WITH (ROWLOCK, READPAST) WHERE queue_id = @queue_id;
END
GO

-- Forgets the rollbacks of a group's conversations, whose lock the caller holds. An UPDATE that scans would wait for every row
-- that another transaction writes, so it is a seek, and mostly there is nothing to write.
CREATE PROCEDURE dialoq.forget_group_rollbacks
    @group uniqueidentifier
AS
BEGIN
    SET NOCOUNT ON;
    IF NOT EXISTS (
        SELECT 1
        FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
        WHERE e.conversation_group_id = @group AND e.rollbacks <> 0)
        RETURN;
    UPDATE e SET rollbacks = 0
    FROM dialoq.conversation_endpoint AS e WITH (ROWLOCK, INDEX (conversation_endpoint_group), FORCESEEK)
    WHERE e.conversation_group_id = @group AND e.rollbacks <> 0;
END
GO

-- Counts the rollback of a transaction that received and is gone: one for each queue it received from, or with quarantine
-- for each of its groups there. Five in a row disable the queue, or set the guilty group aside. Whoever counts it first
-- has it. Locks groups with quarantine, without waiting: those that another transaction holds are passed over; the
-- definitions if it disables a queue, for which it waits 250 ms at most; then the groups of the notifications that tell of
-- it, without waiting.
CREATE PROCEDURE dialoq.count_attempt
    @attempt_id uniqueidentifier, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @gone TABLE (row_number int IDENTITY(1, 1) PRIMARY KEY, queue_id int NOT NULL, group_id uniqueidentifier NOT NULL);
    DECLARE @queue_id int = -2147483648, @next int, @number int, @group uniqueidentifier, @rollbacks int;
    DECLARE @notification int, @notification_group uniqueidentifier;
    DECLARE @is_handled bit, @is_quarantine bit, @is_locked bit, @resource nvarchar(255), @got int;
    -- One counts it; who comes second finds nothing left, and does not wait for that.
    SET @resource = CONCAT(N'dialoq:attempt:', @attempt_id);
    IF APPLOCK_TEST(N'dialoq_user', @resource, N'Exclusive', N'Transaction') = 0 RETURN;
    EXEC @got = sp_getapplock
        @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0,
        @DbPrincipal = N'dialoq_user';
    IF @got < 0 RETURN;
    DELETE FROM a
    OUTPUT deleted.queue_id, deleted.conversation_group_id INTO @gone (queue_id, group_id)
    FROM dialoq.receive_attempt AS a WITH (ROWLOCK, INDEX (receive_attempt_attempt), FORCESEEK)
    WHERE a.attempt_id = @attempt_id;
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT @next = MIN(g.queue_id) FROM @gone AS g WHERE g.queue_id > @queue_id;
        IF @next IS NULL BREAK;
        SET @queue_id = @next;
        SET @notices = CONCAT(@notices, N' q:', @queue_id);
        SET @is_handled = 0;
        SELECT @is_handled = q.is_poison_message_handling_enabled, @is_quarantine = q.is_poison_quarantine_enabled
        FROM dialoq.service_queue AS q WHERE q.queue_id = @queue_id;
        IF @is_handled = 0 CONTINUE;
        SET @number = 0;
        WHILE @is_quarantine = 1
        BEGIN
            SET @group = NULL;
            SELECT TOP (1) @number = g.row_number, @group = g.group_id
            FROM @gone AS g WHERE g.queue_id = @queue_id AND g.row_number > @number ORDER BY g.row_number;
            IF @group IS NULL BREAK;
            EXEC dialoq.lock_group @group, 0, @is_locked OUTPUT;
            IF @is_locked = 0 CONTINUE;
            UPDATE e SET rollbacks = e.rollbacks + 1
            FROM dialoq.conversation_endpoint AS e WITH (ROWLOCK, INDEX (conversation_endpoint_group), FORCESEEK)
            WHERE e.conversation_group_id = @group;
            SELECT @rollbacks = MAX(e.rollbacks)
            FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
            WHERE e.conversation_group_id = @group;
            IF @rollbacks >= 5
            BEGIN
                -- A conversation that joins the group later begins at 0 rollbacks.
                UPDATE e SET is_quarantined = 1, rollbacks = 0
                FROM dialoq.conversation_endpoint AS e WITH (ROWLOCK, INDEX (conversation_endpoint_group), FORCESEEK)
                WHERE e.conversation_group_id = @group;
                EXEC dialoq.rebuild_ready_rows @group;
            END
        END
        IF @is_quarantine = 1 CONTINUE;
        INSERT INTO dialoq.queue_rollback (queue_id, counted_at) VALUES (@queue_id, SYSUTCDATETIME());
        SELECT @rollbacks = COUNT(*)
        FROM dialoq.queue_rollback AS r WITH (READCOMMITTEDLOCK, READPAST) WHERE r.queue_id = @queue_id;
        IF @rollbacks >= 5
        BEGIN
            -- If another session is changing definitions, the next rollback disables the queue instead: neither tick nor
            -- the caller of a rollback may wait for a definition that its session never ends.
            EXEC dialoq.try_lock_definitions @is_locked OUTPUT;
            -- The same if another session holds the group of a notification of that event: post_event would wait for it, and
            -- tick with it. A notification comes and goes only under the lock of definitions.
            SET @notification = -2147483648;
            WHILE @is_locked = 1
            BEGIN
                SET @notification_group = NULL;
                SELECT TOP (1) @notification = n.event_notification_id, @notification_group = e.conversation_group_id
                FROM dialoq.event_notification AS n
                JOIN dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
                    ON e.conversation_handle = n.conversation_handle
                WHERE n.queue_id = @queue_id AND n.event = N'BROKER_QUEUE_DISABLED'
                    AND n.event_notification_id > @notification
                ORDER BY n.event_notification_id;
                IF @notification_group IS NULL BREAK;
                EXEC dialoq.lock_group @notification_group, 0, @is_locked OUTPUT;
            END
            IF @is_locked = 0 CONTINUE;
            EXEC dialoq.forget_rollbacks @queue_id;
            UPDATE dialoq.service_queue SET is_receive_enabled = 0, is_enqueue_enabled = 0
            WHERE queue_id = @queue_id AND is_receive_enabled = 1;
            IF @@ROWCOUNT = 0 CONTINUE;
            UPDATE dialoq.broker SET catalog_version = catalog_version + 1 WHERE singleton = 1;
            SET @notices = CONCAT(@notices, N' c');
            EXEC dialoq.post_event @queue_id, N'BROKER_QUEUE_DISABLED', @notices OUTPUT;
        END
    END
END
GO
