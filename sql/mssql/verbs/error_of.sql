-- The code and description in the body of an Error message, for plain SQL.
-- Takes: the body
-- Gives: code, description; both NULL if the body is none of an Error
-- Errors: none
-- Locks: none
-- For: plain SQL
-- Called by: dialoq_user

-- The text of UTF-16LE with its byte-order mark; NULL if it is none, or too long for an Error.
CREATE FUNCTION dialoq.text_of_utf16(@bytes varbinary(max)) RETURNS nvarchar(max) AS
BEGIN
    IF @bytes IS NULL OR DATALENGTH(@bytes) > 65536 OR DATALENGTH(@bytes) % 2 <> 0 OR SUBSTRING(@bytes, 1, 2) <> 0xFFFE
        RETURN NULL;
    -- SQL Server keeps nvarchar in that form. Babelfish does not, so there this reads each unit.
    IF DATALENGTH(CAST(N'a' AS varbinary(max))) = 2
        RETURN CAST(SUBSTRING(@bytes, 3, 65536) AS nvarchar(max));
    DECLARE @text nvarchar(max) = N'', @place int = 3, @unit int, @low int;
    WHILE @place < DATALENGTH(@bytes)
    BEGIN
        SET @unit = CAST(SUBSTRING(@bytes, @place, 1) AS int) + 256 * CAST(SUBSTRING(@bytes, @place + 1, 1) AS int);
        SET @place = @place + 2;
        IF @unit BETWEEN 55296 AND 56319 AND @place < DATALENGTH(@bytes)
        BEGIN
            SET @low = CAST(SUBSTRING(@bytes, @place, 1) AS int) + 256 * CAST(SUBSTRING(@bytes, @place + 1, 1) AS int);
            SET @unit = CASE WHEN @low BETWEEN 56320 AND 57343 THEN 65536 + (@unit - 55296) * 1024 + @low - 56320 ELSE 65533 END;
            SET @place = @place + 2;
        END
        IF @unit = 0 OR @unit BETWEEN 55296 AND 57343 SET @unit = 65533;
        SET @text = CONCAT(@text, NCHAR(@unit));
    END
    RETURN @text;
END
GO

-- The code and description of an Error.
CREATE PROCEDURE dialoq.error_of
    @message_body varbinary(max), @code int = NULL OUTPUT, @description nvarchar(max) = NULL OUTPUT
AS
BEGIN
    -- <settings>
    DECLARE @text nvarchar(max) = dialoq.text_of_utf16(@message_body), @from int, @to int;
    SET @code = NULL;
    SET @description = NULL;
    -- Other collations take characters of full width for these.
    SET @from = CHARINDEX(N'<Code>', @text COLLATE Latin1_General_100_BIN2);
    SET @to = CHARINDEX(N'</Code><Description>', @text COLLATE Latin1_General_100_BIN2);
    IF @from > 0 AND @to > @from
        SET @code = TRY_CAST(SUBSTRING(@text, @from + 6, @to - @from - 6) AS int);
    IF @code IS NOT NULL
    BEGIN
        SET @from = @to + LEN(N'</Code><Description>');
        SET @to = CHARINDEX(N'</Description></Error>', @text COLLATE Latin1_General_100_BIN2, @from);
        IF @to >= @from
            SET @description = REPLACE(REPLACE(REPLACE(REPLACE(
                SUBSTRING(@text, @from, @to - @from) COLLATE Latin1_General_100_BIN2, N'&lt;', N'<'), N'&gt;', N'>'),
                N'&#x0D;', NCHAR(13)), N'&amp;', N'&');
    END
    SELECT @code AS code, @description AS description;
END
GO
