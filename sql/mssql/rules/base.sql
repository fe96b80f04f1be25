-- What every verb uses: the clock, bodies of the system's messages, levels, words.
-- Takes: see each function
-- Gives: see each function

-- The server's clock, or the tests'.
IF OBJECT_ID(N'dialoq.current_time_utc') IS NOT NULL DROP FUNCTION dialoq.current_time_utc
GO
CREATE FUNCTION dialoq.current_time_utc() RETURNS datetime2(6) AS
BEGIN
    RETURN (SELECT COALESCE(b.manual_now, SYSUTCDATETIME()) FROM dialoq.broker AS b WHERE b.singleton = 1);
END
GO

-- A text as THROW takes it: a % of a name must be doubled for SQL Server, whose relative takes it as it is.
IF OBJECT_ID(N'dialoq.throw_text') IS NOT NULL DROP FUNCTION dialoq.throw_text
GO
CREATE FUNCTION dialoq.throw_text(@text nvarchar(max)) RETURNS nvarchar(2048) AS
BEGIN
    IF DATALENGTH(CAST(N'a' AS varbinary(max))) = 2
        RETURN LEFT(REPLACE(LEFT(@text, 1500) COLLATE Latin1_General_100_BIN2, N'%', N'%%'), 2048);
    RETURN LEFT(@text, 2048);
END
GO

-- The name of a queue as it is compared: A to Z fold, in every collation (decision 0019).
IF OBJECT_ID(N'dialoq.fold_name') IS NOT NULL DROP FUNCTION dialoq.fold_name
GO
CREATE FUNCTION dialoq.fold_name(@name nvarchar(4000)) RETURNS nvarchar(4000) AS
BEGIN
    RETURN TRANSLATE(
        @name COLLATE Latin1_General_100_BIN2, N'ABCDEFGHIJKLMNOPQRSTUVWXYZ', N'abcdefghijklmnopqrstuvwxyz');
END
GO

-- A moment as messages and bodies say it.
IF OBJECT_ID(N'dialoq.time_text') IS NOT NULL DROP FUNCTION dialoq.time_text
GO
CREATE FUNCTION dialoq.time_text(@time datetime2(6)) RETURNS nvarchar(32) AS
BEGIN
    RETURN CONCAT(REPLACE(LEFT(CONVERT(nvarchar(33), @time, 126), 23), N' ', N'T'),
        CASE WHEN CHARINDEX(N'.', CONVERT(nvarchar(33), @time, 126)) = 0 THEN N'.000' ELSE N'' END, N'Z');
END
GO

-- The word that says when something falls due; with a space before it, as every word that is added to others.
IF OBJECT_ID(N'dialoq.due_notice') IS NOT NULL DROP FUNCTION dialoq.due_notice
GO
CREATE FUNCTION dialoq.due_notice(@due datetime2(6)) RETURNS nvarchar(32) AS
BEGIN
    IF @due IS NULL RETURN NULL;
    RETURN CONCAT(N' d:', DATEDIFF_BIG(microsecond, '1970-01-01', @due));
END
GO

-- An id as messages say it.
IF OBJECT_ID(N'dialoq.id_text') IS NOT NULL DROP FUNCTION dialoq.id_text
GO
CREATE FUNCTION dialoq.id_text(@id uniqueidentifier) RETURNS nvarchar(36) AS
BEGIN
    RETURN LOWER(CAST(@id AS nvarchar(36)));
END
GO

-- How many characters a text has; exactly if more than so many. LEN leaves out spaces at the end, and counts a character
-- beyond the first 65,536 twice.
IF OBJECT_ID(N'dialoq.character_count') IS NOT NULL DROP FUNCTION dialoq.character_count
GO
CREATE FUNCTION dialoq.character_count(@text nvarchar(max), @limit int) RETURNS int AS
BEGIN
    DECLARE @units int = COALESCE(LEN(@text + N'.') - 1, 0), @place int = 1, @count int = 0;
    IF @units <= @limit RETURN @units;
    WHILE @place <= @units
    BEGIN
        IF UNICODE(SUBSTRING(@text, @place, 1)) NOT BETWEEN 56320 AND 57343 SET @count = @count + 1;
        SET @place = @place + 1;
    END
    RETURN @count;
END
GO

-- One unit of UTF-16LE, in hexadecimal digits.
IF OBJECT_ID(N'dialoq.utf16_unit') IS NOT NULL DROP FUNCTION dialoq.utf16_unit
GO
CREATE FUNCTION dialoq.utf16_unit(@unit int) RETURNS nvarchar(4) AS
BEGIN
    DECLARE @digits nvarchar(16) = N'0123456789ABCDEF';
    RETURN CONCAT(
        SUBSTRING(@digits, @unit / 16 % 16 + 1, 1), SUBSTRING(@digits, @unit % 16 + 1, 1),
        SUBSTRING(@digits, @unit / 4096 % 16 + 1, 1), SUBSTRING(@digits, @unit / 256 % 16 + 1, 1));
END
GO

-- UTF-16LE with its byte-order mark, as every body of the system's.
IF OBJECT_ID(N'dialoq.utf16') IS NOT NULL DROP FUNCTION dialoq.utf16
GO
CREATE FUNCTION dialoq.utf16(@text nvarchar(max)) RETURNS varbinary(max) AS
BEGIN
    -- SQL Server keeps nvarchar that way. A relative of it that keeps it another way gets every unit written out.
    IF DATALENGTH(CAST(N'a' AS varbinary(max))) = 2
        RETURN CAST(NCHAR(65279) + @text AS varbinary(max));
    DECLARE @hex nvarchar(max) = N'FFFE', @place int = 1, @code int;
    WHILE @place <= LEN(@text)
    BEGIN
        SET @code = UNICODE(SUBSTRING(@text, @place, 1));
        IF @code < 65536
            SET @hex = CONCAT(@hex, dialoq.utf16_unit(@code));
        ELSE
            SET @hex = CONCAT(@hex, dialoq.utf16_unit(55296 + (@code - 65536) / 1024),
                dialoq.utf16_unit(56320 + (@code - 65536) % 1024));
        SET @place = @place + 1;
    END
    RETURN CONVERT(varbinary(max), @hex, 2);
END
GO

-- Text between tags. XML 1.0 has no way to write most control characters.
IF OBJECT_ID(N'dialoq.xml_text') IS NOT NULL DROP FUNCTION dialoq.xml_text
GO
CREATE FUNCTION dialoq.xml_text(@text nvarchar(max)) RETURNS nvarchar(max) AS
BEGIN
    -- Other collations take U+FF06 for an ampersand.
    DECLARE @good nvarchar(max) = REPLACE(REPLACE(REPLACE(
        @text COLLATE Latin1_General_100_BIN2, N'&', N'&amp;'), N'<', N'&lt;'), N'>', N'&gt;');
    DECLARE @code int = 0;
    WHILE @code < 160
    BEGIN
        IF (@code NOT IN (9, 10, 13) AND @code < 32 OR @code >= 127)
            AND CHARINDEX(NCHAR(@code), @good COLLATE Latin1_General_100_BIN2) > 0
            SET @good = REPLACE(@good COLLATE Latin1_General_100_BIN2, NCHAR(@code), NCHAR(65533));
        SET @code = CASE @code WHEN 31 THEN 127 ELSE @code + 1 END;
    END
    RETURN REPLACE(REPLACE(@good COLLATE Latin1_General_100_BIN2, NCHAR(65534), NCHAR(65533)), NCHAR(65535), NCHAR(65533));
END
GO

-- The body of an Error.
IF OBJECT_ID(N'dialoq.error_body') IS NOT NULL DROP FUNCTION dialoq.error_body
GO
CREATE FUNCTION dialoq.error_body(@code int, @description nvarchar(max)) RETURNS varbinary(max) AS
BEGIN
    RETURN dialoq.utf16(CONCAT(
        CAST(N'<?xml version="1.0"?><Error xmlns="http://schemas.microsoft.com/SQL/ServiceBroker/Error"><Code>' AS nvarchar(max)),
        @code, N'</Code><Description>', dialoq.xml_text(@description), N'</Description></Error>'));
END
GO

-- The body of an event notification.
IF OBJECT_ID(N'dialoq.event_body') IS NOT NULL DROP FUNCTION dialoq.event_body
GO
CREATE FUNCTION dialoq.event_body(@event nvarchar(64), @queue nvarchar(256), @now datetime2(6)) RETURNS varbinary(max) AS
BEGIN
    RETURN dialoq.utf16(CONCAT(
        CAST(N'<EVENT_INSTANCE><EventType>' AS nvarchar(max)), @event, N'</EventType><PostTime>', dialoq.time_text(@now),
        N'</PostTime><SchemaName>dbo</SchemaName><ObjectName>', dialoq.xml_text(@queue),
        N'</ObjectName><ObjectType>QUEUE</ObjectType></EVENT_INSTANCE>'));
END
GO

-- The level of an endpoint: of the broker priorities that match, the most exact; the contract weighs most, the remote
-- service least.
IF OBJECT_ID(N'dialoq.level_for') IS NOT NULL DROP FUNCTION dialoq.level_for
GO
CREATE FUNCTION dialoq.level_for(@contract_id int, @service_id int, @remote_service nvarchar(512)) RETURNS int AS
BEGIN
    RETURN COALESCE((
        SELECT TOP (1) p.priority
        FROM dialoq.conversation_priority AS p
        WHERE (p.service_contract_id IS NULL OR p.service_contract_id = @contract_id)
            AND (p.local_service_id IS NULL OR p.local_service_id = @service_id)
            AND (p.remote_service_name IS NULL OR p.remote_service_name = @remote_service
                AND DATALENGTH(p.remote_service_name) = DATALENGTH(@remote_service))
        ORDER BY CASE WHEN p.service_contract_id IS NULL THEN 0 ELSE 4 END
            + CASE WHEN p.local_service_id IS NULL THEN 0 ELSE 2 END
            + CASE WHEN p.remote_service_name IS NULL THEN 0 ELSE 1 END DESC), 5);
END
GO

-- The words of a state.
IF OBJECT_ID(N'dialoq.state_name') IS NOT NULL DROP FUNCTION dialoq.state_name
GO
CREATE FUNCTION dialoq.state_name(@state nvarchar(2)) RETURNS nvarchar(32) AS
BEGIN
    RETURN CASE @state
        WHEN N'SO' THEN N'STARTED_OUTBOUND' WHEN N'SI' THEN N'STARTED_INBOUND' WHEN N'CO' THEN N'CONVERSING'
        WHEN N'DI' THEN N'DISCONNECTED_INBOUND' WHEN N'DO' THEN N'DISCONNECTED_OUTBOUND' WHEN N'ER' THEN N'ERROR'
        ELSE N'CLOSED' END;
END
GO

-- When something next happens to an endpoint by itself. A conversation of the longest lifetime, 68 years, is not worth
-- an entry in the index for each of a million.
IF OBJECT_ID(N'dialoq.next_due') IS NOT NULL DROP FUNCTION dialoq.next_due
GO
CREATE FUNCTION dialoq.next_due(
    @state nvarchar(2), @lifetime datetime2(6), @dialog_timer datetime2(6), @security_timestamp datetime2(6),
    @closed_retention_s bigint, @now datetime2(6)
) RETURNS datetime2(6) AS
BEGIN
    DECLARE @due datetime2(6) = CASE @state
        WHEN N'CD' THEN COALESCE(@security_timestamp, DATEADD(second, CAST(@closed_retention_s AS int), @lifetime))
        WHEN N'ER' THEN NULL
        ELSE @lifetime END;
    IF @dialog_timer IS NOT NULL AND (@due IS NULL OR @dialog_timer < @due)
        SET @due = @dialog_timer;
    IF @due >= DATEADD(day, 7300, @now)
        RETURN NULL;
    RETURN @due;
END
GO

-- Every word once, separated by one space; NULL if there is none.
IF OBJECT_ID(N'dialoq.distinct_notices') IS NOT NULL DROP FUNCTION dialoq.distinct_notices
GO
CREATE FUNCTION dialoq.distinct_notices(@notices nvarchar(max)) RETURNS nvarchar(max) AS
BEGIN
    IF CHARINDEX(N' ', LTRIM(@notices)) = 0
        RETURN NULLIF(LTRIM(@notices), N'');
    RETURN (
        SELECT STRING_AGG(CAST(w.word AS nvarchar(max)), N' ')
        FROM (SELECT DISTINCT s.value AS word FROM STRING_SPLIT(@notices, N' ') AS s WHERE s.value <> N'') AS w);
END
GO
