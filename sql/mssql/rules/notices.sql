-- Notices: short texts, separated by spaces, of the changes of a verb: q:<queue_id> (the queue may have messages
-- to receive), d:<microseconds since 1970> (an event falls due then), c (the definitions have changed).
-- Takes: see each function
-- Gives: see each function
-- Errors: none
-- Locks: none

-- The notice of the time of an event, with a space before it, as every notice that is added to others.
CREATE FUNCTION dialoq.due_notice(@due datetime2(6)) RETURNS nvarchar(32) AS
BEGIN
    IF @due IS NULL RETURN NULL;
    RETURN CONCAT(N' d:', DATEDIFF_BIG(microsecond, '1970-01-01', @due));
END
GO

-- Every notice once, separated by one space; NULL if there is none.
CREATE FUNCTION dialoq.distinct_notices(@notices nvarchar(max)) RETURNS nvarchar(max) AS
BEGIN
    IF CHARINDEX(N' ', LTRIM(@notices)) = 0
        RETURN NULLIF(LTRIM(@notices), N'');
    RETURN (
        SELECT STRING_AGG(CAST(w.word AS nvarchar(max)), N' ')
        FROM (SELECT DISTINCT s.value AS word FROM STRING_SPLIT(@notices, N' ') AS s WHERE s.value <> N'') AS w);
END
GO
