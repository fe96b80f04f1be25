-- Texts: errors for THROW, names, ids and times in messages, UTF-16, XML, and the bodies of the broker's messages.
-- Takes: see each function
-- Gives: see each function
-- Errors: refuse throws the error that it is given
-- Locks: none

-- A text for THROW: SQL Server needs each % doubled, Babelfish does not.
CREATE FUNCTION dialoq.throw_text(@text nvarchar(max)) RETURNS nvarchar(2048) AS
BEGIN
    IF DATALENGTH(CAST(N'a' AS varbinary(max))) = 2
        RETURN LEFT(REPLACE(LEFT(@text, 1500) COLLATE Latin1_General_100_BIN2, N'%', N'%%'), 2048);
    RETURN LEFT(@text, 2048);
END
GO

-- Throws the error that a check found.
-- Errors: the one given
CREATE PROCEDURE dialoq.refuse
    @error_number int, @error_message nvarchar(2048)
AS
BEGIN
    SET NOCOUNT ON;
    SET @error_message = dialoq.throw_text(@error_message);
    THROW @error_number, @error_message, 1;
END
GO

-- The folded name of a queue, for comparisons: A to Z in lower case, in every collation (decision 0021).
CREATE FUNCTION dialoq.fold_name(@name nvarchar(4000)) RETURNS nvarchar(4000) AS
BEGIN
    RETURN TRANSLATE(
        @name COLLATE Latin1_General_100_BIN2, N'ABCDEFGHIJKLMNOPQRSTUVWXYZ', N'abcdefghijklmnopqrstuvwxyz');
END
GO

-- A time as it stands in messages and bodies.
CREATE FUNCTION dialoq.time_text(@time datetime2(6)) RETURNS nvarchar(32) AS
BEGIN
    RETURN CONCAT(REPLACE(LEFT(CONVERT(nvarchar(33), @time, 126), 23), N' ', N'T'),
        CASE WHEN CHARINDEX(N'.', CONVERT(nvarchar(33), @time, 126)) = 0 THEN N'.000' ELSE N'' END, N'Z');
END
GO

-- An id as it stands in messages.
CREATE FUNCTION dialoq.id_text(@id uniqueidentifier) RETURNS nvarchar(36) AS
BEGIN
    RETURN LOWER(CAST(@id AS nvarchar(36)));
END
GO

-- The number of characters of a text; exact if above the limit. LEN leaves out spaces at the end, and counts a character
-- beyond U+FFFF twice.
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

-- The beginning of a text, as many characters. LEFT would leave half of one that takes two units.
CREATE FUNCTION dialoq.first_characters(@text nvarchar(max), @most int) RETURNS nvarchar(max) AS
BEGIN
    DECLARE @units int = COALESCE(LEN(@text + N'.') - 1, 0), @place int = 1, @count int = 0;
    IF @units <= @most RETURN @text;
    -- No character takes three.
    IF @units > 2 * @most SET @units = 2 * @most;
    WHILE @place <= @units
    BEGIN
        IF UNICODE(SUBSTRING(@text, @place, 1)) NOT BETWEEN 56320 AND 57343 SET @count = @count + 1;
        IF @count > @most RETURN LEFT(@text, @place - 1);
        SET @place = @place + 1;
    END
    RETURN LEFT(@text, @units);
END
GO

-- The name of a state.
CREATE FUNCTION dialoq.state_name(@state nvarchar(2)) RETURNS nvarchar(32) AS
BEGIN
    RETURN CASE @state
        WHEN N'SO' THEN N'STARTED_OUTBOUND' WHEN N'SI' THEN N'STARTED_INBOUND' WHEN N'CO' THEN N'CONVERSING'
        WHEN N'DI' THEN N'DISCONNECTED_INBOUND' WHEN N'DO' THEN N'DISCONNECTED_OUTBOUND' WHEN N'ER' THEN N'ERROR'
        ELSE N'CLOSED' END;
END
GO

-- One unit of UTF-16LE, in hexadecimal digits.
CREATE FUNCTION dialoq.utf16_unit(@unit int) RETURNS nvarchar(4) AS
BEGIN
    DECLARE @digits nvarchar(16) = N'0123456789ABCDEF';
    RETURN CONCAT(
        SUBSTRING(@digits, @unit / 16 % 16 + 1, 1), SUBSTRING(@digits, @unit % 16 + 1, 1),
        SUBSTRING(@digits, @unit / 4096 % 16 + 1, 1), SUBSTRING(@digits, @unit / 256 % 16 + 1, 1));
END
GO

-- UTF-16LE with its byte-order mark, the form of all bodies of system messages.
CREATE FUNCTION dialoq.utf16(@text nvarchar(max)) RETURNS varbinary(max) AS
BEGIN
    -- SQL Server keeps nvarchar in that form. Babelfish does not, so there this writes each unit.
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

-- UTF-8, in which a text becomes the body of a job; NULL for NULL. Other versions than SQL Server 2019 and later have no collation for it.
-- Users call it, so that plain T-SQL can push a job with a text (roles.sql).
CREATE FUNCTION dialoq.utf8(@text nvarchar(max)) RETURNS varbinary(max) AS
BEGIN
    IF @text IS NULL RETURN NULL;
    -- Every code page has ASCII.
    IF @text COLLATE Latin1_General_100_BIN2 NOT LIKE N'%[^' + NCHAR(1) + N'-' + NCHAR(127) + N']%'
        RETURN CAST(CAST(@text AS varchar(max)) AS varbinary(max));
    DECLARE @done nvarchar(max) = N'', @hex nvarchar(max) = N'', @place int = 1, @units int = LEN(@text + N'.') - 1;
    DECLARE @code int, @low int;
    WHILE @place <= @units
    BEGIN
        SET @code = UNICODE(SUBSTRING(@text, @place, 1));
        -- Where SQL Server counts units of UTF-16, a character beyond U+FFFF is two.
        SET @low = CASE WHEN @code BETWEEN 55296 AND 56319 AND @place < @units THEN UNICODE(SUBSTRING(@text, @place + 1, 1)) END;
        IF @low BETWEEN 56320 AND 57343
        BEGIN
            SET @code = 65536 + (@code - 55296) * 1024 + @low - 56320;
            SET @place = @place + 1;
        END
        SET @hex = CONCAT(@hex, CASE
            WHEN @code < 128 THEN LEFT(dialoq.utf16_unit(@code), 2)
            WHEN @code < 2048 THEN dialoq.utf16_unit(192 + @code / 64 + 256 * (128 + @code % 64))
            WHEN @code < 65536 THEN CONCAT(
                dialoq.utf16_unit(224 + @code / 4096 + 256 * (128 + @code / 64 % 64)), LEFT(dialoq.utf16_unit(128 + @code % 64), 2))
            ELSE CONCAT(
                dialoq.utf16_unit(240 + @code / 262144 + 256 * (128 + @code / 4096 % 64)),
                dialoq.utf16_unit(128 + @code / 64 % 64 + 256 * (128 + @code % 64))) END);
        -- A long text is not copied for each of its characters.
        IF @place % 1000 = 0
        BEGIN
            SET @done = CONCAT(@done, @hex);
            SET @hex = N'';
        END
        SET @place = @place + 1;
    END
    RETURN CONVERT(varbinary(max), CONCAT(@done, @hex), 2);
END
GO

-- The body of the job of a work schedule for a time: {time} in it is the time.
CREATE FUNCTION dialoq.schedule_body(@body nvarchar(max), @time datetime2(6)) RETURNS varbinary(max) AS
BEGIN
    RETURN dialoq.utf8(REPLACE(
        @body COLLATE Latin1_General_100_BIN2, N'{time}', CONCAT(LEFT(dialoq.time_text(@time), 19), N'Z')));
END
GO

-- A text with a mark in place of each half of a character, which SQL Server takes from a program that cuts its texts by units. Only for
-- SQL Server: Babelfish keeps UTF-8, which has no halves.
CREATE FUNCTION dialoq.whole_characters(@text nvarchar(max)) RETURNS nvarchar(max) AS
BEGIN
    IF @text COLLATE Latin1_General_100_BIN2 NOT LIKE N'%[' + NCHAR(55296) + N'-' + NCHAR(57343) + N']%' RETURN @text;
    DECLARE @place int = 1, @units int = LEN(@text COLLATE Latin1_General_100_BIN2 + N'.') - 1, @unit int, @next int;
    WHILE @place <= @units
    BEGIN
        SET @unit = UNICODE(SUBSTRING(@text COLLATE Latin1_General_100_BIN2, @place, 1));
        SET @next = UNICODE(SUBSTRING(@text COLLATE Latin1_General_100_BIN2, @place + 1, 1));
        IF @unit BETWEEN 55296 AND 56319 AND @next BETWEEN 56320 AND 57343
            SET @place = @place + 1;
        ELSE IF @unit BETWEEN 55296 AND 57343
            SET @text = STUFF(@text COLLATE Latin1_General_100_BIN2, @place, 1, NCHAR(65533));
        SET @place = @place + 1;
    END
    RETURN @text;
END
GO

-- Text between tags. A reader of XML takes a carriage return that is not escaped for the end of a line. XML 1.0 has no way to write most
-- control characters.
CREATE FUNCTION dialoq.xml_text(@text nvarchar(max)) RETURNS nvarchar(max) AS
BEGIN
    -- Other collations take U+FF06 for an ampersand.
    DECLARE @good nvarchar(max) = REPLACE(REPLACE(REPLACE(REPLACE(
        @text COLLATE Latin1_General_100_BIN2, N'&', N'&amp;'), N'<', N'&lt;'), N'>', N'&gt;'), NCHAR(13), N'&#x0D;');
    DECLARE @code int = 0;
    WHILE @code < 160
    BEGIN
        IF (@code NOT IN (9, 10) AND @code < 32 OR @code >= 127)
            AND CHARINDEX(NCHAR(@code), @good COLLATE Latin1_General_100_BIN2) > 0
            SET @good = REPLACE(@good COLLATE Latin1_General_100_BIN2, NCHAR(@code), NCHAR(65533));
        SET @code = CASE @code WHEN 31 THEN 127 ELSE @code + 1 END;
    END
    IF DATALENGTH(CAST(N'a' AS varbinary(max))) = 2 SET @good = dialoq.whole_characters(@good);
    RETURN REPLACE(REPLACE(@good COLLATE Latin1_General_100_BIN2, NCHAR(65534), NCHAR(65533)), NCHAR(65535), NCHAR(65533));
END
GO

-- The body of an Error.
CREATE FUNCTION dialoq.error_body(@code int, @description nvarchar(max)) RETURNS varbinary(max) AS
BEGIN
    RETURN dialoq.utf16(CONCAT(
        CAST(N'<?xml version="1.0"?><Error xmlns="http://schemas.microsoft.com/SQL/ServiceBroker/Error"><Code>' AS nvarchar(max)),
        @code, N'</Code><Description>', dialoq.xml_text(@description), N'</Description></Error>'));
END
GO

-- The body of an event notification.
CREATE FUNCTION dialoq.event_body(@event nvarchar(64), @queue nvarchar(256), @now datetime2(6)) RETURNS varbinary(max) AS
BEGIN
    RETURN dialoq.utf16(CONCAT(
        CAST(N'<EVENT_INSTANCE><EventType>' AS nvarchar(max)), @event, N'</EventType><PostTime>', dialoq.time_text(@now),
        N'</PostTime><SchemaName>dbo</SchemaName><ObjectName>', dialoq.xml_text(@queue),
        N'</ObjectName><ObjectType>QUEUE</ObjectType></EVENT_INSTANCE>'));
END
GO
