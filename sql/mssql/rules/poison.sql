-- Poison messages: counting the rollbacks of transactions that received, and the fifth in a row, which turns the queue off. A queue
-- with a retry policy pauses between the attempts at a group. Of transactions that are lost together, as by the end of their process, a
-- queue counts one (decision 0059).
-- Takes: see each procedure
-- Gives: notices, added to @notices
-- Errors: none of its own
-- Locks: see each procedure

-- Forgets the rollbacks of a queue, except those that another transaction is about to forget.
-- Locks: the rollbacks of the queue, without waiting
CREATE PROCEDURE dialoq.forget_rollbacks
    @queue_id int
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':rollbacks:', @queue_id), @is_locked bit;
    IF NOT EXISTS (
        SELECT 1 FROM dialoq.queue_rollback AS r WITH (READCOMMITTEDLOCK, READPAST) WHERE r.queue_id = @queue_id)
        RETURN;
    EXEC dialoq.try_lock @resource, N'Exclusive', @is_locked OUTPUT;
    IF @is_locked = 1 DELETE FROM dialoq.queue_rollback WITH (ROWLOCK, READPAST) WHERE queue_id = @queue_id;
END
GO

-- Forgets the rollbacks of a group's conversations. The caller holds the group's lock. The UPDATE seeks, because a scan would
-- wait for every row that another transaction writes. It runs only if there is a rollback, which is rare.
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

-- Deletes what is still to be counted of a group: it starts again with all its attempts. The caller holds the group's lock.
-- Locks: none
CREATE PROCEDURE dialoq.forget_attempts
    @group uniqueidentifier
AS
BEGIN
    SET NOCOUNT ON;
    DELETE FROM a
    FROM dialoq.receive_attempt AS a WITH (ROWLOCK, READPAST, INDEX (receive_attempt_group), FORCESEEK)
    WHERE a.conversation_group_id = @group;
END
GO

-- The number of rollbacks in a row that make a message poison.
CREATE FUNCTION dialoq.poison_rollbacks() RETURNS int AS
BEGIN
    RETURN 5;
END
GO

-- How many attempts at a message a count stands for: its own, and the others that are not counted yet. Their counts met a group that was
-- held, and would meet it again while readers take the group at once. Deletes those others. The caller holds the group's lock, so none of
-- them has the message now. The message and its conversation are NULL if they are not known.
-- Locks: none
CREATE PROCEDURE dialoq.attempts_at
    @queue_id int, @group uniqueidentifier, @endpoint_id bigint, @message bigint, @attempts int OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DELETE FROM a
    FROM dialoq.receive_attempt AS a WITH (ROWLOCK, READPAST, INDEX (receive_attempt_group), FORCESEEK)
    WHERE a.conversation_group_id = @group AND a.queue_id = @queue_id AND a.endpoint_id = @endpoint_id AND a.first_order = @message;
    SET @attempts = 1 + @@ROWCOUNT;
END
GO

-- Counts a rollback against a conversation group. After the last one allowed the group goes into quarantine. The caller holds the
-- group's lock.
-- Locks: none
CREATE PROCEDURE dialoq.count_against_group
    @queue_id int, @group uniqueidentifier, @endpoint_id bigint, @message bigint
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @new int, @rollbacks int;
    EXEC dialoq.attempts_at @queue_id, @group, @endpoint_id, @message, @new OUTPUT;
    UPDATE e SET rollbacks = e.rollbacks + @new
    FROM dialoq.conversation_endpoint AS e WITH (ROWLOCK, INDEX (conversation_endpoint_group), FORCESEEK)
    WHERE e.conversation_group_id = @group;
    SELECT @rollbacks = MAX(e.rollbacks)
    FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
    WHERE e.conversation_group_id = @group;
    IF @rollbacks >= dialoq.poison_rollbacks() EXEC dialoq.set_quarantined @group, 1;
END
GO

-- Turns a queue off and posts the event. If a lock for that is held, the next rollback does it: neither tick nor the caller of a
-- rollback may wait for a definition that its session never ends. @is_locked is 0 then.
-- Locks: the definitions, for 250 ms at most; the groups of the event notifications, without waiting, because post_event would
--     wait for them, and tick with it. A notification is made and dropped only under the lock of the definitions.
CREATE PROCEDURE dialoq.disable_queue
    @queue_id int, @is_locked bit OUTPUT, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @notification int = -2147483648, @notification_group uniqueidentifier, @version bigint;
    EXEC dialoq.try_lock_definitions @is_locked OUTPUT;
    WHILE @is_locked = 1
    BEGIN
        SET @notification_group = NULL;
        SELECT TOP (1) @notification = n.event_notification_id, @notification_group = e.conversation_group_id
        FROM dialoq.event_notification AS n
        JOIN dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) ON e.conversation_handle = n.conversation_handle
        WHERE n.queue_id = @queue_id AND n.event = N'BROKER_QUEUE_DISABLED' AND n.event_notification_id > @notification
        ORDER BY n.event_notification_id;
        IF @notification_group IS NULL BREAK;
        EXEC dialoq.lock_group @notification_group, 0, @is_locked OUTPUT;
    END
    IF @is_locked = 0 RETURN;
    EXEC dialoq.forget_rollbacks @queue_id;
    UPDATE dialoq.service_queue SET is_receive_enabled = 0, is_enqueue_enabled = 0,
        off_since = dialoq.current_time_utc(), off_by = N'poison', off_reason = NULL
    WHERE queue_id = @queue_id AND is_receive_enabled = 1;
    IF @@ROWCOUNT = 0 RETURN;
    -- As in define_end.
    SET @version = DATEDIFF_BIG(millisecond, '1970-01-01', SYSUTCDATETIME());
    UPDATE dialoq.broker
    SET catalog_version = CASE WHEN catalog_version >= @version THEN catalog_version + 1 ELSE @version END WHERE singleton = 1;
    SET @notices = CONCAT(@notices, N' c');
    EXEC dialoq.post_event @queue_id, N'BROKER_QUEUE_DISABLED', @notices OUTPUT;
END
GO

-- Counts a rollback against a queue. After the last one allowed the queue is turned off. Two sessions that count at once do not see
-- each other's row: after the fifth rollback the queue would stay on. So counts of a queue come one after the other, but a count waits
-- 100 ms at most: a transaction of plain T-SQL may count and stay open. @group is one that it had received from, @lost_since when, if it
-- was lost without its reader's doing, and else NULL.
-- Locks: the count of the queue, 100 ms at most; those of disable_queue
CREATE PROCEDURE dialoq.count_against_queue
    @queue_id int, @group uniqueidentifier, @lost_since datetime2(6), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @rollbacks int, @counted_in bigint, @is_locked bit;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':count:', @queue_id);
    EXEC dialoq.try_lock @resource, N'Exclusive', @is_locked OUTPUT;
    IF @is_locked = 0
        EXEC sp_getapplock
            @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 100,
            @DbPrincipal = N'dialoq_user';
    -- It was open when others were lost, which have counted: the end of a process with five readers is one attempt, not five. Those that
    -- held one group were not open together, but one was found late.
    SELECT TOP (1) @counted_in = r.rollback_id
    FROM dialoq.queue_rollback AS r WITH (READCOMMITTEDLOCK, READPAST)
    WHERE r.queue_id = @queue_id AND r.counted_in IS NULL AND r.counted_at > @lost_since AND r.lost_group <> @group
        AND NOT EXISTS (
            SELECT 1 FROM dialoq.queue_rollback AS o WITH (READCOMMITTEDLOCK, READPAST)
            WHERE o.queue_id = @queue_id AND o.counted_in = r.rollback_id AND o.lost_group = @group)
    ORDER BY r.rollback_id;
    INSERT INTO dialoq.queue_rollback (queue_id, counted_at, lost_group, counted_in)
    VALUES (@queue_id, SYSUTCDATETIME(), CASE WHEN @lost_since IS NOT NULL THEN @group END, @counted_in);
    IF @counted_in IS NOT NULL RETURN;
    SELECT @rollbacks = COUNT(*)
    FROM dialoq.queue_rollback AS r WITH (READCOMMITTEDLOCK, READPAST) WHERE r.queue_id = @queue_id AND r.counted_in IS NULL;
    IF @rollbacks >= dialoq.poison_rollbacks() EXEC dialoq.disable_queue @queue_id, @is_locked OUTPUT, @notices OUTPUT;
END
GO

-- Counts a rollback against a group of a queue with a retry policy: the group pauses, or the policy gives up. The caller holds the
-- group's lock. The message and its conversation are NULL if they are not known.
-- Locks: those of disable_queue
CREATE PROCEDURE dialoq.retry_group
    @queue_id int, @group uniqueidentifier, @endpoint_id bigint, @message bigint, @reason nvarchar(max), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_locked bit, @attempts int, @oldest bigint, @max_attempts int, @pause_us bigint, @then nvarchar(16);
    DECLARE @now datetime2(6), @retry_at datetime2(6), @name nvarchar(256), @first bigint, @description nvarchar(max), @new int;
    EXEC dialoq.attempts_at @queue_id, @group, @endpoint_id, @message, @new OUTPUT;
    UPDATE e SET rollbacks = e.rollbacks + @new
    FROM dialoq.conversation_endpoint AS e WITH (ROWLOCK, INDEX (conversation_endpoint_group), FORCESEEK)
    WHERE e.conversation_group_id = @group;
    SELECT @attempts = MAX(e.rollbacks), @oldest = MIN(e.endpoint_id)
    FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
    WHERE e.conversation_group_id = @group;
    IF @attempts IS NULL RETURN;
    SET @now = dialoq.current_time_utc();
    SELECT @name = q.name, @max_attempts = q.retry_max_attempts, @then = q.retry_then,
        @pause_us = dialoq.retry_delay_us(q.retry_delay_ms, q.retry_factor_percent, q.retry_max_delay_ms,
            q.retry_jitter_percent, @oldest, @attempts)
    FROM dialoq.service_queue AS q WHERE q.queue_id = @queue_id;
    IF @attempts < @max_attempts
    BEGIN
        IF @pause_us > 0
        BEGIN
            SET @retry_at = dialoq.add_us(@now, @pause_us);
            EXEC dialoq.pause_group @group, @retry_at, @notices OUTPUT;
        END
        RETURN;
    END
    IF @then = N'QUEUE_OFF'
    BEGIN
        EXEC dialoq.disable_queue @queue_id, @is_locked OUTPUT, @notices OUTPUT;
        IF @is_locked = 1 EXEC dialoq.forget_group_rollbacks @group;
        RETURN;
    END
    EXEC dialoq.forget_group_rollbacks @group;
    -- Attempts that are still to be counted were at the same message, as far as it is known: counted against the next one, they would be the
    -- end of a message that no reader has seen.
    DELETE FROM a
    FROM dialoq.receive_attempt AS a WITH (ROWLOCK, READPAST, INDEX (receive_attempt_group), FORCESEEK)
    WHERE a.conversation_group_id = @group AND a.first_order IS NULL;
    IF @then IN (N'END_WITH_ERROR', N'DEAD_LETTER')
    BEGIN
        -- The conversation of the message that was received first. A timer, an Error or one of a higher level may have come meanwhile, which
        -- no reader has seen.
        SELECT @first = e.endpoint_id
        FROM dialoq.conversation_endpoint AS e
        WHERE e.endpoint_id = @endpoint_id AND e.conversation_group_id = @group AND (e.is_quarantined = 0 OR e.retry_at IS NOT NULL)
            AND e.state NOT IN (N'DO', N'CD');
        -- If it is not known, that of the message that RECEIVE would give first; one that pauses only if there is no other. If several attempts
        -- are counted late, it pauses after the one before.
        IF @first IS NULL
        BEGIN
            SET @message = NULL;
            SELECT TOP (1) @first = e.endpoint_id
            FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
            WHERE e.conversation_group_id = @group AND (e.is_quarantined = 0 OR e.retry_at IS NOT NULL) AND e.state NOT IN (N'DO', N'CD')
                AND EXISTS (
                    SELECT 1 FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST) WHERE m.endpoint_id = e.endpoint_id)
            ORDER BY e.is_quarantined, e.priority DESC, CAST(e.conversation_handle AS nvarchar(36)) COLLATE Latin1_General_100_BIN2;
        END
        IF @first IS NULL RETURN;
        UPDATE dialoq.conversation_endpoint SET is_quarantined = 0, retry_at = NULL WHERE endpoint_id = @first AND retry_at IS NOT NULL;
        EXEC dialoq.apply_pending @first, @notices OUTPUT;
        IF @then = N'DEAD_LETTER'
        BEGIN
            EXEC dialoq.bury @first, @message, @attempts, @reason, @now;
            RETURN;
        END
        SET @description = CONCAT(N'the message was received ', @attempts, N' times from queue ''', @name,
            N''', and each time its transaction rolled back');
        EXEC dialoq.end_endpoint @first, 60047, @description, 0, @now, @notices OUTPUT;
        RETURN;
    END
    EXEC dialoq.set_quarantined @group, 1;
END
GO

-- Counts the rollback of a transaction that received and has ended, and deletes its attempts: one rollback for each queue
-- that it received from, or with quarantine or a retry policy one for each of its groups there. The first session that counts it
-- locks the attempt; for others this does nothing. The attempt at a group that another transaction holds stays, and tick counts it:
-- between the rollback and this call another receiver may have taken the group, and a count under its lock would be lost. With quarantine
-- or a policy it counts for the group in which the message is now: the transaction may have moved its conversation, and that is undone. An
-- attempt at a message that is gone no longer counts: it is counted late, and another transaction has handled the message since. @lost_since
-- is not NULL if the transaction was lost, without its reader's doing: the latest time at which it had received.
-- Locks: the attempt and the groups, without waiting; those of count_against_queue
CREATE PROCEDURE dialoq.count_attempt
    @attempt_id uniqueidentifier, @lost_since datetime2(6), @reason nvarchar(max), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @ended TABLE (
        row_number int IDENTITY(1, 1) PRIMARY KEY, queue_id int NOT NULL, group_id uniqueidentifier NOT NULL, began_at datetime2(6) NOT NULL,
        endpoint_id bigint NULL, first_order bigint NULL);
    DECLARE @since datetime2(6), @queue_id int = -2147483648, @next int, @number int, @group uniqueidentifier, @is_locked bit;
    DECLARE @noted uniqueidentifier, @endpoint_id bigint, @message bigint;
    DECLARE @counted TABLE (group_id uniqueidentifier NOT NULL);
    DECLARE @is_handled bit, @is_quarantine bit, @is_retried bit, @resource nvarchar(255) = CONCAT(N'dialoq:attempt:', @attempt_id);
    EXEC dialoq.try_lock @resource, N'Exclusive', @is_locked OUTPUT;
    IF @is_locked = 0 RETURN;
    INSERT INTO @ended (queue_id, group_id, began_at, endpoint_id, first_order)
    SELECT a.queue_id, a.conversation_group_id, a.began_at, a.endpoint_id, a.first_order
    FROM dialoq.receive_attempt AS a WITH (INDEX (receive_attempt_attempt), FORCESEEK)
    WHERE a.attempt_id = @attempt_id ORDER BY a.attempt_number;
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT @next = MIN(o.queue_id) FROM @ended AS o WHERE o.queue_id > @queue_id;
        IF @next IS NULL BREAK;
        SET @queue_id = @next;
        SET @notices = CONCAT(@notices, N' q:', @queue_id);
        SET @is_handled = 0;
        SELECT @is_handled = q.is_poison_message_handling_enabled, @is_quarantine = q.is_poison_quarantine_enabled,
            @is_retried = CASE WHEN q.retry_max_attempts IS NULL THEN 0 ELSE 1 END
        FROM dialoq.service_queue AS q WHERE q.queue_id = @queue_id;
        -- A commit that was under way has deleted its attempt meanwhile: no row, no rollback.
        IF @is_handled = 0 OR @is_quarantine = 0 AND @is_retried = 0
        BEGIN
            DELETE FROM a
            FROM dialoq.receive_attempt AS a WITH (ROWLOCK, INDEX (receive_attempt_attempt), FORCESEEK)
            WHERE a.attempt_id = @attempt_id AND a.queue_id = @queue_id;
            IF @@ROWCOUNT > 0 AND @is_handled = 1
            BEGIN
                SELECT TOP (1) @since = o.began_at, @group = o.group_id
                FROM @ended AS o WHERE o.queue_id = @queue_id ORDER BY o.began_at, o.row_number;
                IF @lost_since IS NULL OR @lost_since < @since SET @since = @lost_since;
                EXEC dialoq.count_against_queue @queue_id, @group, @since, @notices OUTPUT;
            END
            CONTINUE;
        END
        SET @number = 0;
        WHILE 1 = 1
        BEGIN
            SET @noted = NULL;
            SELECT TOP (1) @number = o.row_number, @noted = o.group_id, @endpoint_id = o.endpoint_id, @message = o.first_order
            FROM @ended AS o WHERE o.queue_id = @queue_id AND o.row_number > @number ORDER BY o.row_number;
            IF @noted IS NULL BREAK;
            SET @group = @noted;
            SELECT @group = e.conversation_group_id
            FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
            JOIN dialoq.service AS s ON s.service_id = e.service_id
            WHERE e.endpoint_id = @endpoint_id AND s.queue_id = @queue_id;
            EXEC dialoq.lock_group @group, 0, @is_locked OUTPUT;
            -- With the lock the conversation stays in its group; it may have left just before.
            IF @is_locked = 1 AND EXISTS (
                SELECT 1
                FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
                JOIN dialoq.service AS s ON s.service_id = e.service_id
                WHERE e.endpoint_id = @endpoint_id AND s.queue_id = @queue_id AND e.conversation_group_id <> @group)
                SET @is_locked = 0;
            IF @is_locked = 0
            BEGIN
                SET @notices = CONCAT(@notices, dialoq.due_notice(DATEADD(second, 1, dialoq.current_time_utc())));
                CONTINUE;
            END
            DELETE FROM a
            FROM dialoq.receive_attempt AS a WITH (ROWLOCK, INDEX (receive_attempt_attempt), FORCESEEK)
            WHERE a.attempt_id = @attempt_id AND a.conversation_group_id = @noted;
            IF @@ROWCOUNT = 0 CONTINUE;
            IF @message IS NOT NULL AND NOT EXISTS (
                SELECT 1
                FROM dialoq.queue_message AS m WITH (READUNCOMMITTED)
                WHERE m.endpoint_id = @endpoint_id AND m.delivery_class IN (0, 1, 2) AND m.queuing_order = @message)
                CONTINUE;
            -- Its service may have another queue since.
            IF NOT EXISTS (
                SELECT 1
                FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED, INDEX (conversation_endpoint_group), FORCESEEK)
                JOIN dialoq.service AS s ON s.service_id = e.service_id
                WHERE e.conversation_group_id = @group AND s.queue_id = @queue_id)
                CONTINUE;
            -- The transaction received from it before and after it had moved the conversation.
            IF EXISTS (SELECT 1 FROM @counted AS c WHERE c.group_id = @group) CONTINUE;
            INSERT INTO @counted (group_id) VALUES (@group);
            IF @is_retried = 1 EXEC dialoq.retry_group @queue_id, @group, @endpoint_id, @message, @reason, @notices OUTPUT;
            ELSE EXEC dialoq.count_against_group @queue_id, @group, @endpoint_id, @message;
        END
    END
END
GO
