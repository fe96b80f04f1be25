-- Definitions that need all conversations of a service at one moment, while transactions keep some of them busy: after a second a
-- client holds receives back, until the definition has them.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: see each procedure
-- Locks: see each procedure
-- Called by: dialoq_admin (hold_receives)

-- Holds receives back from the queues of the conversations that a definition waits for. A transaction that holds a conversation
-- already goes on.
-- Takes: the contract or the service of these conversations (both NULL: all conversations); for how many ms
-- Gives: notices
-- Errors: 60005
-- Locks: the rows of the queues, without waiting
CREATE PROCEDURE dialoq.hold_receives
    @contract_id int, @service_id int, @hold_ms int
AS
BEGIN
    -- <definition>
    DECLARE @until datetime2(6), @notices nvarchar(max), @text nvarchar(2048);
    IF @hold_ms IS NULL OR @hold_ms NOT BETWEEN 1 AND 60000
    BEGIN
        SET @text = CONCAT(N'@hold_ms is ', COALESCE(CAST(@hold_ms AS nvarchar(20)), N'NULL'), N'; it must be 1 to 60000');
        THROW 60005, @text, 1;
    END
    SET @until = DATEADD(millisecond, @hold_ms, dialoq.current_time_utc());
    -- Another definition, or a queue that is being turned off, is not waited for.
    UPDATE q SET receives_held_until = @until
    FROM dialoq.service_queue AS q WITH (ROWLOCK, READPAST)
    WHERE EXISTS (
        SELECT 1
        FROM dialoq.service AS s
        JOIN dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) ON e.service_id = s.service_id
        WHERE s.queue_id = q.queue_id AND (@service_id IS NULL OR s.service_id = @service_id)
            AND (@contract_id IS NULL OR e.service_contract_id = @contract_id));
    SET @notices = dialoq.due_notice(@until);
    SELECT dialoq.distinct_notices(@notices) AS notices;
    -- </definition>
END
GO

-- Whether receives are held back until a moment, and this transaction holds no group of the queue: a definition may wait for what it
-- holds.
CREATE PROCEDURE dialoq.find_hold
    @queue_id int, @held_until datetime2(6), @is_held_back bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET @is_held_back = 0;
    -- No hold is longer than a minute: the clock was set back.
    IF @held_until <= dialoq.current_time_utc() OR @held_until > DATEADD(second, 60, dialoq.current_time_utc()) RETURN;
    IF EXISTS (
        SELECT 1
        FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE s.queue_id = @queue_id
            AND APPLOCK_MODE(N'dialoq_user', CONCAT(N'dialoq:group:', e.conversation_group_id), N'Session') = N'Exclusive')
        RETURN;
    -- Outside a transaction the server refuses to say what its transaction holds (3918).
    IF @@TRANCOUNT > 0
    BEGIN
        IF EXISTS (
            SELECT 1
            FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
            JOIN dialoq.service AS s ON s.service_id = e.service_id
            WHERE s.queue_id = @queue_id
                AND APPLOCK_MODE(N'dialoq_user', CONCAT(N'dialoq:group:', e.conversation_group_id), N'Transaction') = N'Exclusive')
            RETURN;
    END
    SET @is_held_back = 1;
END
GO

-- Ends the holds whose time is over, or all of them after a definition.
CREATE PROCEDURE dialoq.end_holds
    @now datetime2(6), @are_all bit, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @ended TABLE (queue_id int NOT NULL);
    IF NOT EXISTS (SELECT 1 FROM dialoq.service_queue AS q WITH (READUNCOMMITTED) WHERE q.receives_held_until IS NOT NULL) RETURN;
    UPDATE q SET receives_held_until = NULL
    OUTPUT inserted.queue_id INTO @ended (queue_id)
    FROM dialoq.service_queue AS q WITH (ROWLOCK, READPAST)
    WHERE q.receives_held_until IS NOT NULL AND (@are_all = 1 OR q.receives_held_until <= @now
        OR q.receives_held_until > DATEADD(second, 60, @now));
    SELECT @notices = CONCAT(@notices, N' q:', e.queue_id) FROM @ended AS e;
END
GO
