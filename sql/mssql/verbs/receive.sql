-- RECEIVE: takes messages of one conversation group out of a queue. Never waits.
-- Takes: the queue; how many at most (NULL: all of the group); the conversation or the group to take from (NULL: the best
--     of the queue that no other session holds); bounds of the level of that best group; whether age counts and not level
-- Gives: the messages in order of receipt, notices in each
-- Errors: 58426, 58436, 59617, 60002, 60005
-- Locks: the group, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.receive
    @queue nvarchar(4000), @top bigint = NULL, @conversation_handle uniqueidentifier = NULL,
    @conversation_group_id uniqueidentifier = NULL, @lowest int = 1, @highest int = 10, @oldest bit = 0
AS
BEGIN
    -- <settings>
    DECLARE @queue_id int, @text nvarchar(2048), @group uniqueidentifier, @only bigint, @state nvarchar(2), @in_queue int;
    DECLARE @from_top int, @to_top int, @by_age bit = COALESCE(@oldest, 0), @service_id int, @is_known bit = 0, @is_held_back bit;
    EXEC dialoq.find_receivable @queue, @queue_id OUTPUT, @is_held_back OUTPUT;
    SET @lowest = COALESCE(@lowest, 1);
    SET @highest = COALESCE(@highest, 10);
    IF @lowest < 1 OR @highest NOT BETWEEN @lowest AND 10
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'the range of levels is ', @lowest, N' to ', @highest,
            N'; it must be within 1 to 10, the lower first'));
        THROW 60005, @text, 1;
    END
    IF (@lowest > 1 OR @highest < 10) AND (@by_age = 1 OR @conversation_handle IS NOT NULL OR @conversation_group_id IS NOT NULL)
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'the range of levels is ', @lowest, N' to ', @highest,
            N'; it chooses a group by its level, so leave it out with @oldest, a conversation or a group'));
        THROW 60005, @text, 1;
    END
    SET @from_top = 10 - @highest;
    SET @to_top = 10 - @lowest;
    IF @conversation_handle IS NOT NULL
    BEGIN
        SELECT @only = e.endpoint_id, @group = e.conversation_group_id, @state = e.state, @in_queue = s.queue_id
        FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE e.conversation_handle = @conversation_handle AND e.is_system = 0;
        IF @only IS NULL
            -- The transaction that changes the row holds the group, and RECEIVE does not wait.
            SELECT @only = e.endpoint_id, @group = e.conversation_group_id, @state = N'CO', @in_queue = s.queue_id
            FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
            JOIN dialoq.service AS s ON s.service_id = e.service_id
            WHERE e.conversation_handle = @conversation_handle AND e.is_system = 0;
        IF @only IS NULL
        BEGIN
            -- A transaction that is removing the endpoint holds its group, and may roll back: no message is received.
            EXEC dialoq.find_handle @conversation_handle, @only OUTPUT;
            SET @group = NEWID();
            SET @in_queue = @queue_id;
        END
        IF @only IS NULL OR @state IN (N'DO', N'CD')
        BEGIN
            SET @text = dialoq.unknown_handle_text(@conversation_handle);
            THROW 58426, @text, 1;
        END
        IF @in_queue <> @queue_id
        BEGIN
            SET @text = dialoq.throw_text(CONCAT(N'conversation handle ', dialoq.id_text(@conversation_handle),
                N' was not found in queue ''', @queue, N''': its service uses another queue'));
            THROW 58426, @text, 1;
        END
    END
    ELSE IF @conversation_group_id IS NOT NULL
    BEGIN
        SET @group = @conversation_group_id;
        IF NOT EXISTS (
            SELECT 1
            FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
            JOIN dialoq.service AS s ON s.service_id = e.service_id
            WHERE e.conversation_group_id = @group AND s.queue_id = @queue_id)
            -- Likewise, of the last conversation of the group.
            EXEC dialoq.find_group_service @group, @service_id OUTPUT, @is_known OUTPUT;
        IF @is_known = 1 AND NOT EXISTS (
            SELECT 1 FROM dialoq.service AS s WHERE s.service_id = @service_id AND s.queue_id = @queue_id)
        BEGIN
            SET @text = dialoq.throw_text(CONCAT(N'conversation group ', dialoq.id_text(@group), N' of queue ''', @queue,
                N''' was not found: it has no conversations here'));
            THROW 58436, @text, 1;
        END
    END
    -- No conversation has this group.
    IF @is_held_back = 1
    BEGIN
        SET @group = NEWID();
        SET @only = NULL;
    END
    IF @top = 1
        EXEC dialoq.receive_one @queue_id, @group, @only, @from_top, @to_top, @by_age;
    ELSE
    BEGIN
        -- On Babelfish a table variable costs 0.4 to 0.75 ms, so it is declared only if TOP is not 1.
        DECLARE @items dialoq.receive_batch_rows;
        INSERT INTO @items (item, [top]) VALUES (0, @top);
        EXEC dialoq.receive_items @queue_id, @items, @group, @only, @from_top, @to_top, @by_age, NULL, NULL, 0;
    END
END
GO
